import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.QueueBrowser;
import javax.jms.Session;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** Streams and consumer groups: topics and durable subscriptions to JMS. */
public final class Streams extends Scenarios {
    private ActiveMQTopic stream(String options) {
        if (!broker.kind.equals("quire")) {
            throw new Skipped("ActiveMQ has no streams: stream://NAME would be a topic of that name");
        }
        return new ActiveMQTopic("stream://IT." + name("") + options);
    }

    /** A member of the group "billing", on a connection with a client id of its own; a new group begins at the start. */
    private MessageConsumer member(Session session) throws JMSException {
        return session.createDurableSubscriber(stream("?consumer.retroactive=true"), "billing");
    }

    private ActiveMQConnection own(String suffix) throws JMSException {
        return connectAs(name(suffix));
    }

    @Scenario
    void twoConnectionsShareTheGroup() throws Exception {
        stream("");
        MessageConsumer one = member(auto(own("one")));
        MessageConsumer other = member(auto(own("other")));
        Set<Integer> partitions = new HashSet<>();
        List<String> texts = new ArrayList<>();
        // Until the partitions are shared out, one member may have them all.
        eventually("both members are given messages", () -> {
            send(stream(""), numbered("early", 8));
            boolean isShared = !rest(one).isEmpty();
            return !rest(other).isEmpty() && isShared;
        });
        send(stream(""), numbered("m", 40));
        for (MessageConsumer member : List.of(one, other)) {
            Set<Integer> own = new HashSet<>();
            Message message;
            while ((message = member.receive(3 * QUIET)) != null) {
                texts.add(text(message));
                own.add(message.getIntProperty("JMS_QUIRE_PARTITION"));
                check(message.getLongProperty("JMS_QUIRE_OFFSET") > 0, "an offset of 1 or more");
                equal(stream(""), message.getJMSDestination(), "destination");
            }
            check(Collections.disjoint(partitions, own), "a partition of both members: " + own);
            partitions.addAll(own);
        }
        equal(new HashSet<>(List.of(numbered("m", 40))), new HashSet<>(texts), "texts");
        equal(40, texts.size(), "messages");
    }

    @Scenario
    void theGroupGoesOnWhereItWas() throws Exception {
        send(stream(""), "m1", "m2", "m3");
        ActiveMQConnection connection = own("one");
        MessageConsumer consumer = member(auto(connection));
        equal(3, receive(consumer, 3).size(), "messages");
        connection.close();
        send(stream(""), "m4");
        MessageConsumer later = member(auto(own("later")));
        expect(later, "m4");
        nothing(later);
    }

    @Scenario
    void aReaderBeginsAtTheEnd() throws Exception {
        send(stream(""), "old");
        MessageConsumer reader = auto(connect()).createConsumer(stream(""));
        MessageConsumer whole = auto(connect()).createConsumer(stream("?consumer.retroactive=true"));
        send(stream(""), "new");
        expect(reader, "new");
        equal(Set.of("old", "new"), new HashSet<>(texts(receive(whole, 2))), "texts");
    }

    @Scenario
    void aRollbackDeliversAgain() throws Exception {
        send(stream(""), "m");
        Session session = transacted(own("one"));
        MessageConsumer consumer = member(session);
        expect(consumer, "m", false);
        session.rollback();
        expect(consumer, "m", true);
        session.commit();
        nothing(consumer);
    }

    @Scenario
    void whatAClosedMemberHadComesAgain() throws Exception {
        send(stream(""), "m");
        ActiveMQConnection connection = own("one");
        MessageConsumer consumer = member(connection.createSession(false, Session.CLIENT_ACKNOWLEDGE));
        String id = expect(consumer, "m", false).getJMSMessageID();
        connection.close();
        Session session = own("other").createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Message again = expect(member(session), "m", true);
        equal(id, again.getJMSMessageID(), "JMSMessageID");
        equal(2, deliveries(again), "deliveries");
        again.acknowledge();
    }

    @Scenario
    void aMessageThatFailsIsTriedAgainByTheGroup() throws Exception {
        send(stream(""), "m");
        ActiveMQConnection connection = connect(factory -> {
            factory.setClientID(name("one"));
            factory.getRedeliveryPolicy().setMaximumRedeliveries(0);
        });
        Session session = transacted(connection);
        MessageConsumer consumer = member(session);
        String id = expect(consumer, "m", false).getJMSMessageID();
        session.rollback();
        Message again = expect(consumer, "m", true);
        equal(id, again.getJMSMessageID(), "JMSMessageID");
        session.commit();
    }

    @Scenario
    void eachMessageMayBePulled() throws Exception {
        send(stream(""), "m1");
        MessageConsumer consumer =
                auto(own("one")).createDurableSubscriber(
                        stream("?consumer.retroactive=true&consumer.prefetchSize=0"), "billing");
        expect(consumer, "m1");
        equal(null, consumer.receiveNoWait(), "a second message");
        send(stream(""), "m2");
        expect(consumer, "m2");
    }

    @Scenario
    void aBrowserShowsEverything() throws Exception {
        send(stream(""), numbered("m", 5));
        ActiveMQQueue shown = new ActiveMQQueue(stream("").getPhysicalName());
        QueueBrowser browser = auto(connect()).createBrowser(shown);
        Set<String> texts = new HashSet<>();
        for (Object message : Collections.list(browser.getEnumeration())) {
            texts.add(text((Message) message));
        }
        equal(new HashSet<>(List.of(numbered("m", 5))), texts, "texts");
    }

    @Scenario
    void aPropertyDeterminesThePartition() throws Exception {
        Session session = auto(connect());
        MessageConsumer reader = session.createConsumer(stream("?consumer.retroactive=true"));
        MessageProducer producer = session.createProducer(stream(""));
        for (int partition : new int[] {2, 0, 2}) {
            Message message = session.createTextMessage("m");
            message.setIntProperty("partition", partition);
            producer.send(message);
        }
        List<Integer> partitions = new ArrayList<>();
        for (Message message : receive(reader, 3)) {
            partitions.add(message.getIntProperty("JMS_QUIRE_PARTITION"));
        }
        Collections.sort(partitions);
        equal(List.of(0, 2, 2), partitions, "partitions");
    }

    @Scenario
    void aGroupIsNotUnsubscribedByMistake() throws Exception {
        Session session = auto(own("one"));
        member(session).close();
        fails(JMSException.class, () -> {
            session.unsubscribe("billing");
            return null;
        });
        session.unsubscribe(stream("").getPhysicalName() + "?group=billing");
    }
}
