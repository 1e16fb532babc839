import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

import javax.jms.DeliveryMode;
import javax.jms.InvalidSelectorException;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;

/** Selectors over properties and headers, as the broker applies them. */
public final class Selectors extends Scenarios {
    private Session session;

    /** Five messages whose properties differ. */
    private void sendSamples() throws JMSException {
        session = auto(connect());
        for (int i = 1; i <= 5; i++) {
            Message message = session.createTextMessage("m" + i);
            message.setIntProperty("i", i);
            message.setLongProperty("big", 10_000_000_000L + i);
            message.setDoubleProperty("half", i / 2.0);
            message.setBooleanProperty("even", i % 2 == 0);
            message.setStringProperty("color", List.of("red", "green", "blue", "gr_y", "grey").get(i - 1));
            if (i == 3) {
                message.setStringProperty("only3", "it's");
            }
            message.setJMSType(i < 3 ? "small" : "large");
            message.setJMSCorrelationID("c" + i);
            int mode = i == 5 ? DeliveryMode.NON_PERSISTENT : DeliveryMode.PERSISTENT;
            session.createProducer(queue()).send(message, mode, i, 0);
        }
    }

    private void matches(String selector, int... numbers) throws JMSException {
        List<String> expected = new ArrayList<>();
        for (int number : numbers) {
            expected.add("m" + number);
        }
        List<String> found = new ArrayList<>();
        for (Object message : Collections.list(session.createBrowser(queue(), selector).getEnumeration())) {
            found.add(text((Message) message));
        }
        Collections.sort(found);
        equal(expected, found, selector);
    }

    @Scenario
    void comparisons() throws Exception {
        sendSamples();
        matches("i = 3", 3);
        matches("i <> 3", 1, 2, 4, 5);
        matches("i < 2", 1);
        matches("i <= 2", 1, 2);
        matches("i > 4", 5);
        matches("i >= 4", 4, 5);
        matches("i BETWEEN 2 AND 4", 2, 3, 4);
        matches("i NOT BETWEEN 2 AND 4", 1, 5);
        matches("i = 3.0", 3);
        matches("half = 1.5", 3);
        matches("half > 2E0", 5);
        matches("big > 10000000003", 4, 5);
        matches("even = TRUE", 2, 4);
        matches("even", 2, 4);
        matches("even = FALSE", 1, 3, 5);
    }

    @Scenario
    void texts() throws Exception {
        sendSamples();
        matches("color = 'red'", 1);
        matches("color <> 'red'", 2, 3, 4, 5);
        matches("color IN ('red', 'blue', 'pink')", 1, 3);
        matches("color NOT IN ('red', 'blue')", 2, 4, 5);
        matches("color LIKE 'gr%'", 2, 4, 5);
        matches("color LIKE 'gr_y'", 4, 5);
        matches("color LIKE 'gr\\_y' ESCAPE '\\'", 4);
        matches("color NOT LIKE 'gr%'", 1, 3);
        matches("only3 = 'it''s'", 3);
    }

    @Scenario
    void logicAndUnknownValues() throws Exception {
        sendSamples();
        matches("i = 1 OR i = 2 AND even", 1, 2);
        matches("(i = 1 OR i = 2) AND even", 2);
        matches("NOT (i = 1)", 2, 3, 4, 5);
        matches("only3 IS NULL", 1, 2, 4, 5);
        matches("only3 IS NOT NULL", 3);
        matches("only3 = 'x' OR i = 1", 1);
        matches("NOT (only3 = 'x')", 3);
        matches("missing = 1");
        matches("missing <> 1");
    }

    @Scenario
    void unlikeTypesNeverMatch() throws Exception {
        session = auto(connect());
        Message message = session.createTextMessage("m1");
        message.setStringProperty("text", "2");
        message.setStringProperty("said", "true");
        message.setIntProperty("whole", 7);
        message.setBooleanProperty("yes", true);
        session.createProducer(queue()).send(message);
        matches("text = '2' AND said = 'true' AND whole = 7 AND yes = TRUE", 1);
        for (String unlike : List.of("text > 1", "text = 2", "text BETWEEN 1 AND 3", "said = TRUE", "whole = '7'",
                "whole LIKE '7'", "whole LIKE '%'", "whole IN ('7')", "yes = 'true'", "yes = 1", "text = whole")) {
            matches(unlike);
        }
    }

    @Scenario
    void arithmetic() throws Exception {
        sendSamples();
        matches("i + 1 = 3", 2);
        matches("i * 2 > 8", 5);
        matches("i - 1 = 0", 1);
        matches("-i = -4", 4);
        matches("i * (2 + 1) = 9", 3);
        matches("half / 2 = 1.0", 4);
    }

    @Scenario
    void headers() throws Exception {
        sendSamples();
        matches("JMSType = 'small'", 1, 2);
        matches("JMSPriority > 3", 4, 5);
        matches("JMSCorrelationID = 'c2'", 2);
        matches("JMSDeliveryMode = 'NON_PERSISTENT'", 5);
        matches("JMSDeliveryMode = 'PERSISTENT'", 1, 2, 3, 4);
        matches("JMSTimestamp > 1000000000000", 1, 2, 3, 4, 5);
        matches("JMSMessageID LIKE 'ID:%'", 1, 2, 3, 4, 5);
        matches("JMSMessageID IS NULL");
        matches("JMSRedelivered = FALSE", 1, 2, 3, 4, 5);
    }

    @Scenario
    void aBadSelectorIsRefused() throws Exception {
        Session session = auto(connectAs(name("")));
        fails(InvalidSelectorException.class, () -> session.createConsumer(queue(), "i = "));
        fails(InvalidSelectorException.class, () -> session.createConsumer(topic(), "((i = 1)"));
        fails(InvalidSelectorException.class, () -> session.createDurableSubscriber(topic(), "x", "i LIKE 5", false));
    }

    @Scenario
    void consumersShareAQueueByTheirSelectors() throws Exception {
        sendSamples();
        MessageConsumer even = auto(connect()).createConsumer(queue(), "even");
        MessageConsumer odd = auto(connect()).createConsumer(queue(), "NOT even");
        expect(even, "m2", "m4");
        expect(odd, "m1", "m3", "m5");
        nothing(even);
        nothing(odd);
    }

    @Scenario
    void whatASelectorDoesNotMatchStays() throws Exception {
        sendSamples();
        MessageConsumer consumer = session.createConsumer(queue(), "i = 3");
        expect(consumer, "m3");
        nothing(consumer);
        consumer.close();
        equal(List.of("m1", "m2", "m4", "m5"), left(queue()), "what is left");
    }

    @Scenario
    void subscribersOfATopicChooseTheirMessages() throws Exception {
        Session session = auto(connect());
        MessageConsumer all = session.createConsumer(topic());
        MessageConsumer some = session.createConsumer(topic(), "i > 1");
        for (int i = 1; i <= 3; i++) {
            Message message = session.createTextMessage("m" + i);
            message.setIntProperty("i", i);
            session.createProducer(topic()).send(message);
        }
        expect(all, "m1", "m2", "m3");
        expect(some, "m2", "m3");
        nothing(some);
    }

    @Scenario
    void aSelectorMayBeAnOptionOfTheName() throws Exception {
        sendSamples();
        MessageConsumer consumer = session.createConsumer(queue("?consumer.selector=color='blue'"));
        expect(consumer, "m3");
        nothing(consumer);
    }
}
