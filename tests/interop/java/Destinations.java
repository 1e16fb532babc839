import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;

import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTopic;

/** Names with a meaning: composites, wildcards, virtual topics, options. */
public final class Destinations extends Scenarios {
    @Scenario
    void aCompositeSendsToEach() throws Exception {
        Session session = auto(connect());
        MessageConsumer a = session.createConsumer(queue(".a"));
        MessageConsumer b = session.createConsumer(queue(".b"));
        send(new ActiveMQQueue(queue(".a").getQueueName() + "," + queue(".b").getQueueName()), "m1", "m2");
        Message message = next(a);
        equal("m1", text(message), "text");
        equal(queue(".a"), message.getJMSDestination(), "JMSDestination");
        message = next(b);
        equal("m1", text(message), "text");
        equal(queue(".b"), message.getJMSDestination(), "JMSDestination");
        expect(a, "m2");
        expect(b, "m2");
    }

    @Scenario
    void aCompositeMayHaveQueuesAndTopics() throws Exception {
        Session session = auto(connect());
        MessageConsumer ofQueue = session.createConsumer(queue());
        MessageConsumer ofTopic = session.createConsumer(topic());
        send(new ActiveMQQueue(queue().getQueueName() + ",topic://" + topic().getTopicName()), "m");
        expect(ofQueue, "m");
        expect(ofTopic, "m");
    }

    @Scenario
    void aCompositeIsSentToInATransaction() throws Exception {
        Session session = transacted(connect());
        ActiveMQQueue both = new ActiveMQQueue(queue(".a").getQueueName() + "," + queue(".b").getQueueName());
        send(session, both, "never");
        session.rollback();
        send(session, both, "m");
        session.commit();
        session.close();
        equal(List.of("m"), left(queue(".a")), "texts of a");
        equal(List.of("m"), left(queue(".b")), "texts of b");
    }

    @Scenario
    void aConsumerOfACompositeGetsTheMessagesOfEach() throws Exception {
        send(queue(".a"), "a1");
        Session session = auto(connect());
        ActiveMQQueue both = new ActiveMQQueue(queue(".a").getQueueName() + "," + queue(".b").getQueueName());
        MessageConsumer consumer = session.createConsumer(both);
        expect(consumer, "a1");
        send(queue(".b"), "b1", "b2");
        expect(consumer, "b1", "b2");
        send(queue(".a"), "a2");
        expect(consumer, "a2");
        session.close();
        equal(List.of(), left(queue(".a")), "what is left of a");
        equal(List.of(), left(queue(".b")), "what is left of b");
    }

    private ActiveMQQueue part(String rest) {
        return new ActiveMQQueue("IT." + name("").replace('.', '_') + rest);
    }

    @Scenario
    void aStarStandsForOneWord() throws Exception {
        send(part(".a"), "old");
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(part(".*"));
        expect(consumer, "old");
        send(part(".a"), "a");
        expect(consumer, "a");
        send(part(".new"), "new");
        expect(consumer, "new");
        send(part(".a.b"), "deeper");
        nothing(consumer);
    }

    @Scenario
    void aGreaterThanStandsForAllThatFollows() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer = session.createConsumer(part(".>"));
        send(part(".a"), "a");
        expect(consumer, "a");
        send(part(".a.b.c"), "deep");
        Message message = next(consumer);
        equal("deep", text(message), "text");
        equal(part(".a.b.c"), message.getJMSDestination(), "JMSDestination");
    }

    @Scenario
    void subscribersOfTopicsHaveWildcardsToo() throws Exception {
        Session session = auto(connect());
        MessageConsumer star = session.createConsumer(new ActiveMQTopic(part(".*.x").getQueueName()));
        MessageConsumer rest = session.createConsumer(new ActiveMQTopic(part(".>").getQueueName()));
        send(new ActiveMQTopic(part(".a.x").getQueueName()), "ax");
        send(new ActiveMQTopic(part(".a.y").getQueueName()), "ay");
        expect(rest, "ax", "ay");
        expect(star, "ax");
        nothing(star);
    }

    @Scenario
    void aDurableSubscriberHasWildcardsToo() throws Exception {
        ActiveMQConnection connection = connectAs(name(""));
        ActiveMQTopic all = new ActiveMQTopic(part(".>").getQueueName());
        auto(connection).createDurableSubscriber(all, "sub");
        connection.close();
        send(new ActiveMQTopic(part(".a").getQueueName()), "a");
        send(new ActiveMQTopic(part(".b.c").getQueueName()), "bc");
        MessageConsumer subscriber = auto(connectAs(name(""))).createDurableSubscriber(all, "sub");
        equal(new TreeSet<>(List.of("a", "bc")), new TreeSet<>(texts(receive(subscriber, 2))), "texts");
    }

    @Scenario
    void aVirtualTopicFillsTheQueuesOfItsConsumers() throws Exception {
        String topic = "VirtualTopic." + name("");
        ActiveMQQueue one = new ActiveMQQueue("Consumer.One." + topic);
        ActiveMQQueue two = new ActiveMQQueue("Consumer.Two." + topic);
        Session session = auto(connect());
        MessageConsumer first = session.createConsumer(one);
        MessageConsumer second = session.createConsumer(two);
        MessageConsumer plain = session.createConsumer(new ActiveMQTopic(topic));
        send(new ActiveMQTopic(topic), "m1");
        expect(first, "m1");
        expect(second, "m1");
        expect(plain, "m1");
        first.close();
        send(new ActiveMQTopic(topic), "m2", "m3");
        expect(second, "m2", "m3");
        expect(session.createConsumer(one), "m2", "m3");
    }

    @Scenario
    void consumersOfAVirtualTopicShareTheirQueue() throws Exception {
        String topic = "VirtualTopic." + name("");
        ActiveMQQueue queue = new ActiveMQQueue("Consumer.One." + topic);
        MessageConsumer one = auto(connect()).createConsumer(queue);
        MessageConsumer other = auto(connect()).createConsumer(queue);
        send(new ActiveMQTopic(topic), numbered("m", 10));
        List<String> got = new ArrayList<>(texts(receive(one, 5)));
        got.addAll(texts(receive(other, 5)));
        equal(new TreeSet<>(List.of(numbered("m", 10))), new TreeSet<>(got), "texts");
        nothing(one);
        nothing(other);
    }

    @Scenario
    void optionsOfANameAreNotPartOfIt() throws Exception {
        Session session = auto(connect());
        MessageConsumer consumer =
            session.createConsumer(session.createQueue(queue().getQueueName() + "?consumer.prefetchSize=3"));
        send(queue(), numbered("m", 5));
        MessageConsumer other = auto(connect()).createConsumer(queue());
        expect(other, "m4", "m5");
        Message message = next(consumer);
        equal(queue(), message.getJMSDestination(), "JMSDestination");
        expect(consumer, "m2", "m3");
    }

    @Scenario
    void namesMayHaveOddCharacters() throws Exception {
        for (String suffix : List.of(".with space", ".a/b", ".\u00e4\u20ac", ".a:b", ".a-b_c$d#e%41")) {
            send(queue(suffix), "m");
            Message message = next(auto(connect()).createConsumer(queue(suffix)));
            equal(queue(suffix), message.getJMSDestination(), "JMSDestination");
        }
    }

    @Scenario
    void aQueueAndATopicOfOneNameAreApart() throws Exception {
        Session session = auto(connect());
        MessageConsumer ofQueue = session.createConsumer(queue());
        MessageConsumer ofTopic = session.createConsumer(topic());
        send(queue(), "q");
        send(topic(), "t");
        expect(ofQueue, "q");
        expect(ofTopic, "t");
        nothing(ofQueue);
        nothing(ofTopic);
    }
}
