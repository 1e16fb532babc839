import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TemporaryQueue;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.advisory.AdvisorySupport;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.command.ConnectionInfo;
import org.apache.activemq.command.ConsumerInfo;
import org.apache.activemq.command.DataStructure;
import org.apache.activemq.command.DestinationInfo;
import org.apache.activemq.command.ProducerInfo;
import org.apache.activemq.command.RemoveInfo;

/** The broker tells what happens in it, on topics. */
public final class Advisories extends Scenarios {
    private MessageConsumer watch(ActiveMQTopic topic) throws JMSException {
        return auto(connect()).createConsumer(topic);
    }

    private static <D extends DataStructure> D data(Message message, Class<D> type) throws JMSException {
        equal("Advisory", message.getJMSType(), "JMSType");
        DataStructure data = ((ActiveMQMessage) message).getDataStructure();
        check(type.isInstance(data), "expected a " + type.getSimpleName() + ", got " + data);
        return type.cast(data);
    }

    @Scenario
    void consumersAreAnnouncedAndCounted() throws Exception {
        MessageConsumer advisories = watch(AdvisorySupport.getConsumerAdvisoryTopic(queue()));
        Session session = auto(connect());
        MessageConsumer one = session.createConsumer(queue(), "i = 1");
        Message message = next(advisories);
        equal("i = 1", data(message, ConsumerInfo.class).getSelector(), "selector");
        equal(queue(), data(message, ConsumerInfo.class).getDestination(), "destination");
        equal(1, message.getIntProperty("consumerCount"), "consumerCount");
        session.createConsumer(queue());
        message = next(advisories);
        equal(2, message.getObjectProperty("consumerCount"), "consumerCount");
        one.close();
        message = next(advisories);
        data(message, RemoveInfo.class);
        equal(1, message.getIntProperty("consumerCount"), "consumerCount");
        session.close();
        equal(0, next(advisories).getIntProperty("consumerCount"), "consumerCount");
        nothing(advisories);
    }

    @Scenario
    void aLateWatcherHearsOfTheConsumersThatAreThere() throws Exception {
        Session session = auto(connect());
        session.createConsumer(queue());
        session.createConsumer(queue());
        MessageConsumer advisories = watch(AdvisorySupport.getConsumerAdvisoryTopic(queue()));
        data(next(advisories), ConsumerInfo.class);
        data(next(advisories), ConsumerInfo.class);
        nothing(advisories);
    }

    @Scenario
    void producersAreAnnouncedAndCounted() throws Exception {
        MessageConsumer advisories = watch(AdvisorySupport.getProducerAdvisoryTopic(queue()));
        MessageProducer producer = auto(connect()).createProducer(queue());
        Message message = next(advisories);
        equal(queue(), data(message, ProducerInfo.class).getDestination(), "destination");
        equal(1, message.getObjectProperty("producerCount"), "producerCount");
        producer.close();
        message = next(advisories);
        data(message, RemoveInfo.class);
        equal(0, message.getIntProperty("producerCount"), "producerCount");
    }

    @Scenario
    void aLateWatcherHearsOfTheProducersThatAreThere() throws Exception {
        Session session = auto(connect());
        session.createProducer(queue());
        session.createProducer(queue());
        MessageConsumer advisories = watch(AdvisorySupport.getProducerAdvisoryTopic(queue()));
        data(next(advisories), ProducerInfo.class);
        data(next(advisories), ProducerInfo.class);
        nothing(advisories);
    }

    @Scenario
    void aLateWatcherHearsOfTheConnectionsThatAreThere() throws Exception {
        connectAs(name(""));
        MessageConsumer advisories = watch(AdvisorySupport.getConnectionAdvisoryTopic());
        ConnectionInfo info;
        do {
            info = data(next(advisories), ConnectionInfo.class);
        } while (!name("").equals(info.getClientId()));
    }

    @Scenario
    void connectionsAreAnnounced() throws Exception {
        MessageConsumer advisories = watch(AdvisorySupport.getConnectionAdvisoryTopic());
        ActiveMQConnection connection = connectAs(name(""));
        ConnectionInfo info;
        do {
            DataStructure data = ((ActiveMQMessage) next(advisories)).getDataStructure();
            info = data instanceof ConnectionInfo ? (ConnectionInfo) data : null;
        } while (info == null || !name("").equals(info.getClientId()));
        String id = info.getConnectionId().getValue();
        connection.close();
        DataStructure data;
        do {
            data = ((ActiveMQMessage) next(advisories)).getDataStructure();
        } while (!(data instanceof RemoveInfo) || !((RemoveInfo) data).getObjectId().toString().equals(id));
    }

    private void destinationIsAnnounced(ActiveMQTopic advisoryTopic, ActiveMQDestination destination) throws Exception {
        MessageConsumer advisories = watch(advisoryTopic);
        send(destination, "m");
        DestinationInfo info;
        do {
            info = data(next(advisories), DestinationInfo.class);
        } while (!info.getDestination().equals(destination));
        check(info.isAddOperation(), "it is announced as " + info);
    }

    @Scenario
    void destinationsAreAnnounced() throws Exception {
        destinationIsAnnounced(AdvisorySupport.getDestinationAdvisoryTopic(queue()), queue());
        destinationIsAnnounced(AdvisorySupport.getDestinationAdvisoryTopic(topic()), topic());
    }

    @Scenario
    void temporaryDestinationsAreAnnounced() throws Exception {
        Session session = auto(connect());
        TemporaryQueue queue = session.createTemporaryQueue();
        MessageConsumer advisories = watch(AdvisorySupport.TEMP_DESTINATION_COMPOSITE_ADVISORY_TOPIC);
        DestinationInfo info;
        do {
            info = data(next(advisories), DestinationInfo.class);
        } while (!info.getDestination().equals(queue));
        check(info.isAddOperation(), "it is announced as " + info);
        queue.delete();
        do {
            info = data(next(advisories), DestinationInfo.class);
        } while (!info.getDestination().equals(queue));
        check(info.isRemoveOperation(), "its end is announced as " + info);
    }

    @Scenario
    void theClientKnowsTheQueuesOfTheBroker() throws Exception {
        send(queue(), "m");
        ActiveMQConnection connection = connect();
        eventually("the queue is known", () -> connection.getDestinationSource().getQueues().contains(queue()));
    }

    @Scenario
    void aConsumerWhoseConnectionIsLostIsCountedOut() throws Exception {
        MessageConsumer advisories = watch(AdvisorySupport.getConsumerAdvisoryTopic(queue()));
        ActiveMQConnection connection = connect();
        auto(connection).createConsumer(queue());
        equal(1, next(advisories).getIntProperty("consumerCount"), "consumerCount");
        cut(connection);
        equal(0, next(advisories).getIntProperty("consumerCount"), "consumerCount");
    }
}
