// A STOMP connection of @stomp/stompjs, driven from outside: one command a line on standard input, one event a line on
// standard output, both JSON; bodies in base64. It says goodbye when standard input ends.
// Arguments: port, version, heart-beat milliseconds both ways.
import net from 'node:net';
import readline from 'node:readline';
import { Client, Versions } from '@stomp/stompjs';

const [port, version, beat] = process.argv.slice(2);
const RECONNECT_MS = 50;

/** What the client wants of a WebSocket, over plain TCP. */
class TcpSocket {
  constructor() {
    this.url = `tcp://127.0.0.1:${port}`;
    this.readyState = 0;
    this.socket = net.createConnection(Number(port), '127.0.0.1');
    this.socket.setNoDelay(true);
    this.socket.on('connect', () => {
      this.readyState = 1;
      this.onopen();
    });
    this.socket.on('data', data => this.onmessage({ data }));
    this.socket.on('error', error => this.onerror(error));
    this.socket.on('close', () => {
      this.readyState = 3;
      this.onclose({});
    });
  }

  send(data) {
    this.socket.write(typeof data === 'string' ? data : new Uint8Array(data));
  }

  close() {
    this.readyState = 2;
    this.socket.end();
  }

  terminate() {
    this.readyState = 2;
    this.socket.destroy();
  }
}

function tell(command, headers = {}, body = new Uint8Array()) {
  console.log(JSON.stringify({ command, headers, body: Buffer.from(body).toString('base64') }));
}

const subscriptions = [];
const messages = new Map();

function subscribe({ destination, headers }) {
  client.subscribe(destination, take, headers);
}

function take(message) {
  messages.set(message.headers['message-id'], message);
  tell('MESSAGE', message.headers, message.binaryBody);
}

const client = new Client({
  webSocketFactory: () => new TcpSocket(),
  stompVersions: new Versions([version]),
  heartbeatIncoming: Number(beat),
  heartbeatOutgoing: Number(beat),
  reconnectDelay: RECONNECT_MS,
  onConnect(frame) {
    tell('CONNECTED', frame.headers);
    subscriptions.forEach(subscribe);
  },
  onUnhandledReceipt: frame => tell('RECEIPT', frame.headers),
  onStompError(frame) {
    tell('ERROR', frame.headers, frame.binaryBody);
    client.reconnectDelay = 0;
    client.deactivate();
  },
  onWebSocketClose: () => tell('CLOSED'),
});

const commands = {
  send: ({ destination, headers, body }) =>
    client.publish({ destination, headers, binaryBody: new Uint8Array(Buffer.from(body, 'base64')) }),
  text: ({ destination, headers, text }) => client.publish({ destination, headers, body: text }),
  subscribe(command) {
    subscriptions.push(command);
    subscribe(command);
  },
  // The client's own way for a message it was given; the plain way for an id that it was not.
  ack: ({ id, headers }) => (messages.has(id) ? messages.get(id).ack(headers) : client.ack(id, '1', headers)),
  nack: ({ id, headers }) => messages.get(id).nack(headers),
  begin: ({ id }) => client.begin(id),
  commit: ({ id }) => client.commit(id),
  abort: ({ id }) => client.abort(id),
};

client.activate();
readline.createInterface({ input: process.stdin })
  .on('line', line => {
    const command = JSON.parse(line);
    commands[command.do](command);
  })
  .on('close', () => client.deactivate().then(() => process.exit()));
