import java.io.Serializable;
import java.net.URL;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

import javax.jms.BytesMessage;
import javax.jms.JMSException;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageEOFException;
import javax.jms.ObjectMessage;
import javax.jms.StreamMessage;
import javax.jms.TextMessage;

import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.BlobMessage;
import org.apache.activemq.command.ActiveMQMessage;

/** Every kind of message arrives as it was sent, plain and compressed. */
public final class MessageKinds extends Scenarios {
    private static final String ODD = "NUL \0, umlaut \u00e4, euro \u20ac, emoji \ud83d\ude00, quote \" and \\ and \n";

    /** For maps, without NUL and what is beyond 16 bits: the client reads these not as it has written them. */
    private static final String ODD_IN_MAPS = "umlaut \u00e4, euro \u20ac, quote \" and \\ and \n";

    private ActiveMQSession session;
    private MessageConsumer consumer;

    private void open(Consumer<ActiveMQConnectionFactory> settings) throws JMSException {
        ActiveMQConnection connection = connect(settings);
        session = (ActiveMQSession) auto(connection);
        List<String> packages = List.of("java.lang", "java.util");
        consumer = auto(connect(factory -> factory.setTrustedPackages(packages))).createConsumer(queue());
    }

    private void open() throws JMSException {
        open(factory -> { });
    }

    private Message over(Message message) throws JMSException {
        session.createProducer(queue()).send(message);
        Message arrived = next(consumer);
        equal(message.getJMSMessageID(), arrived.getJMSMessageID(), "JMSMessageID");
        check(arrived.getClass() == message.getClass(), "sent " + message.getClass() + ", got " + arrived.getClass());
        return arrived;
    }

    @Scenario
    void texts() throws Exception {
        open();
        for (String text : Arrays.asList("plain", "", ODD, "\ud83d\ude00".repeat(5000), "x".repeat(70_000), null)) {
            equal(text, ((TextMessage) over(session.createTextMessage(text))).getText(), "text");
        }
    }

    /** Half of a surrogate pair, which Java allows in a text, and UTF-8 does not. In properties and maps the client
     * itself reads U+FFFD. */
    @Scenario
    void halvesOfSurrogatePairs() throws Exception {
        open();
        for (String half : List.of("\ud83d", "a\ude00b", "\ufffd\ude00\ud83d\ufffd", "\ud83d\ude00\ud83d")) {
            TextMessage message = session.createTextMessage(half);
            message.setJMSCorrelationID(half);
            message.setJMSType(half);
            TextMessage arrived = (TextMessage) over(message);
            equal(half, arrived.getText(), "text");
            equal(half, arrived.getJMSCorrelationID(), "JMSCorrelationID");
            equal(half, arrived.getJMSType(), "JMSType");
        }
        StreamMessage stream = session.createStreamMessage();
        stream.writeString("a\ud83d");
        equal("a\ud83d", ((StreamMessage) over(stream)).readString(), "stream");
    }

    private static BytesMessage fill(BytesMessage message) throws JMSException {
        message.writeBoolean(true);
        message.writeByte((byte) -7);
        message.writeShort((short) -3000);
        message.writeChar('\u20ac');
        message.writeInt(Integer.MIN_VALUE);
        message.writeLong(Long.MAX_VALUE);
        message.writeFloat(1.5f);
        message.writeDouble(-2.25);
        message.writeUTF(ODD);
        message.writeBytes(new byte[] {0, 1, (byte) 0xff});
        return message;
    }

    private static void verify(BytesMessage message) throws JMSException {
        equal(true, message.readBoolean(), "boolean");
        equal((byte) -7, message.readByte(), "byte");
        equal((short) -3000, message.readShort(), "short");
        equal('\u20ac', message.readChar(), "char");
        equal(Integer.MIN_VALUE, message.readInt(), "int");
        equal(Long.MAX_VALUE, message.readLong(), "long");
        equal(1.5f, message.readFloat(), "float");
        equal(-2.25, message.readDouble(), "double");
        equal(ODD, message.readUTF(), "UTF");
        byte[] rest = new byte[3];
        equal(3, message.readBytes(rest), "count of bytes");
        equal(new byte[] {0, 1, (byte) 0xff}, rest, "bytes");
        fails(MessageEOFException.class, message::readByte);
    }

    @Scenario
    void bytes() throws Exception {
        open();
        BytesMessage arrived = (BytesMessage) over(fill(session.createBytesMessage()));
        check(arrived.getBodyLength() > 30, "its length is " + arrived.getBodyLength());
        verify(arrived);
        equal(0L, ((BytesMessage) over(session.createBytesMessage())).getBodyLength(), "length of nothing");
    }

    @Scenario
    void maps() throws Exception {
        open();
        MapMessage arrived = (MapMessage) over(fill(session.createMapMessage()));
        verify(arrived);
        MapMessage empty = (MapMessage) over(session.createMapMessage());
        check(!empty.getMapNames().hasMoreElements(), "an empty map has names");
    }

    private static MapMessage fill(MapMessage message) throws JMSException {
        message.setBoolean("boolean", true);
        message.setByte("byte", (byte) 127);
        message.setShort("short", Short.MIN_VALUE);
        message.setChar("char", 'x');
        message.setInt("int", 42);
        message.setLong("long", Long.MIN_VALUE);
        message.setFloat("float", Float.MIN_VALUE);
        message.setDouble("double", Math.PI);
        message.setString("string", ODD_IN_MAPS);
        message.setBytes("bytes", new byte[] {1, 2, 3});
        message.setObject("null", null);
        message.setObject("list", new ArrayList<>(List.of(1, "two", 3L)));
        message.setObject("map", new HashMap<>(Map.of("inner", new ArrayList<>(List.of(true)))));
        return message;
    }

    private static void verify(MapMessage message) throws JMSException {
        equal(true, message.getBoolean("boolean"), "boolean");
        equal((byte) 127, message.getByte("byte"), "byte");
        equal(Short.MIN_VALUE, message.getShort("short"), "short");
        equal('x', message.getChar("char"), "char");
        equal(42, message.getInt("int"), "int");
        equal(Long.MIN_VALUE, message.getLong("long"), "long");
        equal(Float.MIN_VALUE, message.getFloat("float"), "float");
        equal(Math.PI, message.getDouble("double"), "double");
        equal(ODD_IN_MAPS, message.getString("string"), "string");
        equal(new byte[] {1, 2, 3}, message.getBytes("bytes"), "bytes");
        equal(null, message.getObject("null"), "null");
        equal("[1, two, 3]", message.getObject("list").toString(), "list");
        equal(Map.of("inner", List.of(true)), message.getObject("map"), "map");
        equal(13, Collections.list(message.getMapNames()).size(), "count of names");
    }

    @Scenario
    void streams() throws Exception {
        open();
        verify((StreamMessage) over(fill(session.createStreamMessage())));
    }

    private static StreamMessage fill(StreamMessage message) throws JMSException {
        message.writeBoolean(false);
        message.writeByte((byte) 1);
        message.writeShort((short) 2);
        message.writeChar('c');
        message.writeInt(3);
        message.writeLong(4);
        message.writeFloat(5.5f);
        message.writeDouble(6.5);
        message.writeString(ODD);
        message.writeString("x".repeat(70_000));
        message.writeBytes(new byte[] {9, 8});
        message.writeObject(null);
        return message;
    }

    private static void verify(StreamMessage message) throws JMSException {
        equal(false, message.readBoolean(), "boolean");
        equal((byte) 1, message.readByte(), "byte");
        equal((short) 2, message.readShort(), "short");
        equal('c', message.readChar(), "char");
        equal(3, message.readInt(), "int");
        equal(4L, message.readLong(), "long");
        equal(5.5f, message.readFloat(), "float");
        equal(6.5, message.readDouble(), "double");
        equal(ODD, message.readString(), "string");
        equal(70_000, message.readString().length(), "length of the long string");
        byte[] bytes = new byte[2];
        equal(2, message.readBytes(bytes), "count of bytes");
        equal(new byte[] {9, 8}, bytes, "bytes");
        equal(-1, message.readBytes(bytes), "end of the bytes");
        equal(null, message.readObject(), "null");
        fails(MessageEOFException.class, message::readByte);
    }

    @Scenario
    void objects() throws Exception {
        open();
        Serializable object = new ArrayList<>(List.of("a", 1, 2.5));
        equal(object, ((ObjectMessage) over(session.createObjectMessage(object))).getObject(), "object");
        equal(null, ((ObjectMessage) over(session.createObjectMessage())).getObject(), "no object");
    }

    @Scenario
    void plainMessagesAndReferencesToBlobs() throws Exception {
        open();
        Message plain = session.createMessage();
        plain.setStringProperty("p", "v");
        equal("v", over(plain).getStringProperty("p"), "property");
        BlobMessage blob = session.createBlobMessage(new URL("http://localhost/file"));
        blob.setMimeType("image/png");
        BlobMessage arrived = (BlobMessage) over((Message) blob);
        equal("http://localhost/file", arrived.getURL().toString(), "URL");
        equal("image/png", arrived.getMimeType(), "type");
    }

    @Scenario
    void compressedMessagesOfEveryKind() throws Exception {
        open(factory -> factory.setUseCompression(true));
        Message arrived = over(session.createTextMessage("abc".repeat(20_000)));
        check(((ActiveMQMessage) arrived).isCompressed(), "the text is not compressed");
        equal("abc".repeat(20_000), text(arrived), "text");
        verify((BytesMessage) over(fill(session.createBytesMessage())));
        verify((MapMessage) over(fill(session.createMapMessage())));
        verify((StreamMessage) over(fill(session.createStreamMessage())));
        Serializable object = new ArrayList<>(List.of("a", 1));
        equal(object, ((ObjectMessage) over(session.createObjectMessage(object))).getObject(), "object");
    }

    @Scenario(seconds = 40)
    void tenMegabytes() throws Exception {
        open();
        byte[] body = new byte[10_000_000];
        new java.util.Random(7).nextBytes(body);
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body);
        verify(body, (BytesMessage) over(message));
    }

    @Scenario(seconds = 40)
    void tenMegabytesCompressed() throws Exception {
        open(factory -> factory.setUseCompression(true));
        byte[] body = new byte[10_000_000];
        java.util.Random random = new java.util.Random(7);
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) random.nextInt(16);
        }
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body);
        BytesMessage arrived = (BytesMessage) over(message);
        check(((ActiveMQMessage) arrived).isCompressed(), "it is not compressed");
        verify(body, arrived);
    }

    private static void verify(byte[] body, BytesMessage arrived) throws JMSException {
        equal((long) body.length, arrived.getBodyLength(), "length");
        byte[] got = new byte[body.length];
        arrived.readBytes(got);
        check(Arrays.equals(body, got), "the bytes differ");
    }
}
