import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.command.ActiveMQTopic;

/** A topic gives each message to everyone who has subscribed before. */
public final class PublishSubscribe extends Scenarios {
    @Scenario
    void everySubscriberGetsEverythingInOrder() throws Exception {
        Session session = auto(connect());
        MessageConsumer one = session.createConsumer(topic());
        MessageConsumer two = session.createConsumer(topic());
        MessageConsumer elsewhere = auto(connect()).createConsumer(topic());
        send(topic(), numbered("m", 50));
        expect(one, numbered("m", 50));
        expect(two, numbered("m", 50));
        expect(elsewhere, numbered("m", 50));
        nothing(elsewhere);
    }

    @Scenario
    void noLocalLeavesOutTheMessagesOfItsOwnConnection() throws Exception {
        ActiveMQConnection connection = connect();
        Session session = auto(connection);
        MessageConsumer others = session.createConsumer(topic(), null, true);
        MessageConsumer all = session.createConsumer(topic());
        send(auto(connection), topic(), "mine");
        send(topic(), "theirs");
        expect(all, "mine", "theirs");
        expect(others, "theirs");
        nothing(others);
    }

    @Scenario
    void aSubscriberGetsNothingOld() throws Exception {
        Session session = auto(connect());
        MessageConsumer early = session.createConsumer(topic());
        send(topic(), "old");
        expect(early, "old");
        MessageConsumer late = session.createConsumer(topic());
        send(topic(), "new");
        expect(late, "new");
        expect(early, "new");
    }

    @Scenario
    void aRetroactiveSubscriberGetsWhatThePolicyKeeps() throws Exception {
        String name = "RETRO." + name("");
        Session session = auto(connect());
        MessageConsumer early = session.createConsumer(new ActiveMQTopic(name));
        send(new ActiveMQTopic(name), "m1", "m2");
        expect(early, "m1", "m2");
        MessageConsumer plain = session.createConsumer(new ActiveMQTopic(name));
        MessageConsumer late = session.createConsumer(new ActiveMQTopic(name + "?consumer.retroactive=true"));
        expect(late, "m1", "m2");
        nothing(plain);
    }

    @Scenario
    void aSubscriptionEndsWithItsConsumer() throws Exception {
        Session session = auto(connect());
        MessageConsumer first = session.createConsumer(topic());
        first.close();
        send(topic(), "missed");
        MessageConsumer second = session.createConsumer(topic());
        send(topic(), "m");
        expect(second, "m");
        nothing(second);
    }

    @Scenario
    void messagesOfATopicAreNotRedeliveredToOthers() throws Exception {
        Session session = connect().createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer one = session.createConsumer(topic());
        MessageConsumer other = auto(connect()).createConsumer(topic());
        send(topic(), "m1", "m2");
        Message message = next(one);
        expect(other, "m1", "m2");
        equal("m1", text(message), "text");
        one.close();
        nothing(other);
    }
}
