import java.io.File;
import java.util.ArrayList;
import java.util.List;

import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.region.policy.FixedCountSubscriptionRecoveryPolicy;
import org.apache.activemq.broker.region.policy.IndividualDeadLetterStrategy;
import org.apache.activemq.broker.region.policy.PolicyEntry;
import org.apache.activemq.broker.region.policy.PolicyMap;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/** An ActiveMQ to compare with: <code>java Peer DIRECTORY PORT</code>. It prints "ready" when it listens. */
public final class Peer {
    public static void main(String[] arguments) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setBrokerName("peer");
        broker.setUseJmx(false);
        broker.setUseShutdownHook(true);
        broker.setDataDirectory(arguments[0]);
        broker.setSchedulerSupport(true);
        broker.getSystemUsage().getStoreUsage().setLimit(2L << 30);
        broker.getSystemUsage().getTempUsage().setLimit(1L << 30);
        broker.getSystemUsage().getJobSchedulerUsage().setLimit(1L << 30);
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File(arguments[0], "kahadb"));
        broker.setPersistenceAdapter(store);
        broker.setDestinationPolicy(policies());
        broker.addConnector("tcp://127.0.0.1:" + arguments[1]);
        broker.start();
        broker.waitUntilStarted();
        System.out.println("ready");
        broker.waitUntilStopped();
    }

    /** The same as in quire.toml. */
    private static PolicyMap policies() {
        PolicyEntry priorities = new PolicyEntry();
        priorities.setQueue("PRIO.>");
        priorities.setPrioritizedMessages(true);
        PolicyEntry individual = new PolicyEntry();
        individual.setQueue("INDIVIDUAL.>");
        individual.setDeadLetterStrategy(new IndividualDeadLetterStrategy());
        PolicyEntry retroactive = new PolicyEntry();
        retroactive.setTopic("RETRO.>");
        retroactive.setSubscriptionRecoveryPolicy(new FixedCountSubscriptionRecoveryPolicy());
        PolicyEntry load = new PolicyEntry();
        load.setQueue("LOAD.>");
        load.setPersistJMSRedelivered(true);
        PolicyMap map = new PolicyMap();
        map.setPolicyEntries(new ArrayList<>(List.of(priorities, individual, retroactive, load)));
        return map;
    }
}
