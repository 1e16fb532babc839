import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

import javax.jms.JMSException;
import javax.jms.MessageConsumer;
import javax.jms.XASession;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;

import org.apache.activemq.ActiveMQXAConnection;
import org.apache.activemq.ActiveMQXAConnectionFactory;

/** Distributed transactions, as a transaction manager has them. */
public final class XaTransactions extends Scenarios {
    private final AtomicInteger branches = new AtomicInteger();

    private record Branch(byte[] global, byte[] qualifier) implements Xid {
        @Override
        public int getFormatId() {
            return 4711;
        }

        @Override
        public byte[] getGlobalTransactionId() {
            return global;
        }

        @Override
        public byte[] getBranchQualifier() {
            return qualifier;
        }
    }

    private Xid branch() {
        byte[] qualifier = ("branch" + branches.incrementAndGet()).getBytes(StandardCharsets.UTF_8);
        return new Branch(global().getBytes(StandardCharsets.UTF_8), qualifier);
    }

    /** The scenario's own global id; it may have 64 bytes. */
    private String global() {
        String name = name("");
        return name.substring(Math.max(0, name.length() - 64));
    }

    private ActiveMQXAConnection connectXa() throws JMSException {
        ActiveMQXAConnectionFactory factory = new ActiveMQXAConnectionFactory(broker.url());
        factory.getRedeliveryPolicy().setInitialRedeliveryDelay(0);
        ActiveMQXAConnection connection = keep((ActiveMQXAConnection) factory.createXAConnection());
        connection.start();
        return connection;
    }

    /** The branches of this scenario that the broker has prepared. */
    private List<Xid> prepared(XAResource resource) throws XAException {
        List<Xid> mine = new ArrayList<>();
        for (Xid xid : resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN)) {
            if (new String(xid.getGlobalTransactionId(), StandardCharsets.UTF_8).equals(global())) {
                mine.add(xid);
            }
        }
        return mine;
    }

    private static void failsWith(int code, XaAction action) throws Exception {
        try {
            action.run();
        } catch (XAException error) {
            equal(code, error.errorCode, "errorCode of " + error);
            return;
        }
        throw new AssertionError("expected an XAException with " + code + ", but it succeeded");
    }

    private interface XaAction {
        void run() throws XAException;
    }

    /** A branch that has sent some messages and is prepared. */
    private Xid prepareSending(XASession session, String... texts) throws Exception {
        Xid xid = branch();
        XAResource resource = session.getXAResource();
        resource.start(xid, XAResource.TMNOFLAGS);
        send(session, queue(), texts);
        resource.end(xid, XAResource.TMSUCCESS);
        equal(XAResource.XA_OK, resource.prepare(xid), "the vote");
        return xid;
    }

    @Scenario
    void sentMessagesAppearWithTheSecondPhase() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        XASession session = connectXa().createXASession();
        Xid xid = prepareSending(session, "m1", "m2");
        nothing(consumer);
        session.getXAResource().commit(xid, false);
        expect(consumer, "m1", "m2");
    }

    @Scenario
    void onePhaseIsEnough() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        XASession session = connectXa().createXASession();
        XAResource resource = session.getXAResource();
        Xid xid = branch();
        resource.start(xid, XAResource.TMNOFLAGS);
        send(session, queue(), "m");
        resource.end(xid, XAResource.TMSUCCESS);
        nothing(consumer);
        resource.commit(xid, true);
        expect(consumer, "m");
    }

    @Scenario
    void rollbackBeforeAndAfterPrepare() throws Exception {
        XASession session = connectXa().createXASession();
        XAResource resource = session.getXAResource();
        Xid early = branch();
        resource.start(early, XAResource.TMNOFLAGS);
        send(session, queue(), "early");
        resource.end(early, XAResource.TMSUCCESS);
        resource.rollback(early);
        Xid late = prepareSending(session, "late");
        resource.rollback(late);
        equal(List.of(), prepared(resource), "prepared branches");
        equal(List.of(), left(queue()), "what was sent");
    }

    @Scenario
    void receivedMessagesGoWithTheSecondPhase() throws Exception {
        send(queue(), "m1", "m2");
        XASession session = connectXa().createXASession();
        XAResource resource = session.getXAResource();
        MessageConsumer consumer = session.createConsumer(queue());
        Xid xid = branch();
        resource.start(xid, XAResource.TMNOFLAGS);
        expect(consumer, "m1");
        resource.end(xid, XAResource.TMSUCCESS);
        equal(XAResource.XA_OK, resource.prepare(xid), "the vote");
        resource.commit(xid, false);
        session.close();
        equal(List.of("m2"), left(queue()), "what is left");
    }

    @Scenario
    void receivedMessagesComeAgainAfterARollback() throws Exception {
        send(queue(), "m1", "m2");
        XASession session = connectXa().createXASession();
        XAResource resource = session.getXAResource();
        MessageConsumer consumer = session.createConsumer(queue());
        Xid xid = branch();
        resource.start(xid, XAResource.TMNOFLAGS);
        expect(consumer, "m1");
        resource.end(xid, XAResource.TMSUCCESS);
        equal(XAResource.XA_OK, resource.prepare(xid), "the vote");
        resource.rollback(xid);
        session.close();
        equal(List.of("m1", "m2"), left(queue()), "what is left");
    }

    @Scenario
    void anEmptyBranchNeedsNoSecondPhase() throws Exception {
        XAResource resource = connectXa().createXASession().getXAResource();
        Xid xid = branch();
        resource.start(xid, XAResource.TMNOFLAGS);
        resource.end(xid, XAResource.TMSUCCESS);
        equal(XAResource.XA_RDONLY, resource.prepare(xid), "the vote");
        equal(List.of(), prepared(resource), "prepared branches");
    }

    @Scenario
    void aPreparedBranchIsRecoveredByAnotherConnection() throws Exception {
        ActiveMQXAConnection first = connectXa();
        Xid xid = prepareSending(first.createXASession(), "m");
        Xid other = prepareSending(first.createXASession(), "never");
        first.close();
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        nothing(consumer);
        XAResource resource = connectXa().createXASession().getXAResource();
        List<Xid> found = prepared(resource);
        equal(2, found.size(), "prepared branches");
        equal(4711, found.get(0).getFormatId(), "format");
        resource.commit(xid, false);
        expect(consumer, "m");
        equal(1, prepared(resource).size(), "prepared branches");
        resource.rollback(prepared(resource).get(0));
        nothing(consumer);
        failsWith(XAException.XAER_NOTA, () -> resource.commit(other, false));
    }

    @Scenario
    void aBranchThatIsNotPreparedEndsWithItsConnection() throws Exception {
        ActiveMQXAConnection connection = connectXa();
        XASession session = connection.createXASession();
        session.getXAResource().start(branch(), XAResource.TMNOFLAGS);
        send(session, queue(), "never");
        cut(connection);
        equal(List.of(), left(queue()), "what was sent");
        equal(List.of(), prepared(connectXa().createXASession().getXAResource()), "prepared branches");
    }

    @Scenario
    void aBranchIsSuspendedAndResumed() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        XASession session = connectXa().createXASession();
        XAResource resource = session.getXAResource();
        Xid one = branch();
        Xid other = branch();
        resource.start(one, XAResource.TMNOFLAGS);
        send(session, queue(), "one");
        resource.end(one, XAResource.TMSUSPEND);
        resource.start(other, XAResource.TMNOFLAGS);
        send(session, queue(), "other");
        resource.end(other, XAResource.TMSUCCESS);
        resource.commit(other, true);
        expect(consumer, "other");
        resource.start(one, XAResource.TMRESUME);
        send(session, queue(), "resumed");
        resource.end(one, XAResource.TMSUCCESS);
        resource.prepare(one);
        resource.commit(one, false);
        expect(consumer, "one", "resumed");
    }

    @Scenario
    void twoSessionsJoinInABranch() throws Exception {
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        ActiveMQXAConnection connection = connectXa();
        XASession one = connection.createXASession();
        XASession other = connection.createXASession();
        check(one.getXAResource().isSameRM(other.getXAResource()), "they have not the same resource manager");
        Xid xid = branch();
        one.getXAResource().start(xid, XAResource.TMNOFLAGS);
        send(one, queue(), "one");
        one.getXAResource().end(xid, XAResource.TMSUCCESS);
        other.getXAResource().start(xid, XAResource.TMJOIN);
        send(other, queue(), "other");
        other.getXAResource().end(xid, XAResource.TMSUCCESS);
        one.getXAResource().prepare(xid);
        nothing(consumer);
        one.getXAResource().commit(xid, false);
        expect(consumer, "one", "other");
    }

    @Scenario
    void anUnknownBranchHasItsErrorCode() throws Exception {
        XAResource resource = connectXa().createXASession().getXAResource();
        failsWith(XAException.XAER_NOTA, () -> resource.commit(branch(), false));
        failsWith(XAException.XAER_NOTA, () -> resource.rollback(branch()));
    }

    @Scenario(seconds = 60)
    void aPreparedBranchSurvivesAKillOfTheBroker() throws Exception {
        send(queue(".in"), "in");
        XASession session = connectXa().createXASession();
        XAResource before = session.getXAResource();
        MessageConsumer receiver = session.createConsumer(queue(".in"));
        Xid xid = branch();
        before.start(xid, XAResource.TMNOFLAGS);
        expect(receiver, "in");
        send(session, queue(), "m");
        before.end(xid, XAResource.TMSUCCESS);
        before.prepare(xid);
        broker.kill();
        broker.start();
        equal(List.of(), left(queue(".in")), "what is left to receive");
        MessageConsumer consumer = auto(connect()).createConsumer(queue());
        nothing(consumer);
        XAResource after = connectXa().createXASession().getXAResource();
        equal(1, prepared(after).size(), "prepared branches");
        after.commit(xid, false);
        expect(consumer, "m");
        equal(List.of(), left(queue(".in")), "what is left to receive");
        equal(List.of(), prepared(after), "prepared branches");
    }
}
