import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;

import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.QueueBrowser;
import javax.jms.Session;

/** A browser shows what is in a queue, and takes nothing. */
public final class Browsing extends Scenarios {
    private static List<String> shown(QueueBrowser browser) throws JMSException {
        List<String> texts = new ArrayList<>();
        for (Object message : Collections.list(browser.getEnumeration())) {
            texts.add(text((Message) message));
        }
        browser.close();
        return texts;
    }

    @Scenario
    void everythingIsShownInOrderAndStays() throws Exception {
        send(queue(), numbered("m", 20));
        Session session = auto(connect());
        equal(List.of(numbered("m", 20)), shown(session.createBrowser(queue())), "shown texts");
        equal(List.of(numbered("m", 20)), shown(session.createBrowser(queue())), "shown texts, again");
        MessageConsumer consumer = session.createConsumer(queue());
        for (String text : numbered("m", 20)) {
            expect(consumer, text, false);
        }
        equal(List.of(), shown(session.createBrowser(queue())), "an empty queue");
    }

    @Scenario
    void aSelectorChooses() throws Exception {
        Session session = auto(connect());
        for (int i = 1; i <= 6; i++) {
            Message message = session.createTextMessage("m" + i);
            message.setIntProperty("i", i);
            session.createProducer(queue()).send(message);
        }
        equal(List.of("m5", "m6"), shown(session.createBrowser(queue(), "i > 4")), "shown texts");
    }

    @Scenario
    void aBrowserShowsMoreThanItsPrefetch() throws Exception {
        Session sending = transacted(connect());
        send(sending, queue(), numbered("m", 350));
        sending.commit();
        Session session = auto(connect(factory -> factory.getPrefetchPolicy().setQueueBrowserPrefetch(10)));
        equal(List.of(numbered("m", 350)), shown(session.createBrowser(queue())), "shown texts");
    }

    @Scenario
    void theEnumerationEnds() throws Exception {
        Session session = auto(connect());
        QueueBrowser browser = session.createBrowser(queue());
        check(!browser.getEnumeration().hasMoreElements(), "an empty queue has messages");
        browser.close();
        send(queue(), "m");
        Enumeration<?> messages = session.createBrowser(queue()).getEnumeration();
        check(messages.hasMoreElements(), "the message is not shown");
        equal("m", text((Message) messages.nextElement()), "text");
        check(!messages.hasMoreElements(), "more than the message is shown");
    }

    @Scenario
    void aBrowserHoldsUpNobody() throws Exception {
        send(queue(), "m1", "m2");
        Session session = auto(connect());
        Enumeration<?> messages = session.createBrowser(queue()).getEnumeration();
        check(messages.hasMoreElements(), "nothing is shown");
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        expect(consumer, "m1", "m2");
        send(queue(), "m3");
        expect(consumer, "m3");
    }

    @Scenario
    void sentMessagesAreShownAfterTheCommit() throws Exception {
        Session sending = transacted(connect());
        send(sending, queue(), "m");
        Session session = auto(connect());
        equal(List.of(), shown(session.createBrowser(queue())), "before the commit");
        sending.commit();
        equal(List.of("m"), shown(session.createBrowser(queue())), "after the commit");
    }
}
