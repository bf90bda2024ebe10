import { connect } from "@nats-io/transport-node";
import { type CoordinatorFixture, describeCoordinator } from "../contract/coordinator.ts";
import { NatsCluster, NatsServer } from "../support/nats.ts";
import { Subject } from "../support/recorder.ts";

/** Short, to see expiry soon; long against a stall of a busy machine. In milliseconds. */
const TTL_MS = 2_000;

interface Servers {
  readonly urls: string[];
  disconnect(): Promise<void>;
  reconnect(): Promise<void>;
  stop(): Promise<void>;
}

async function natsFixture(servers: Servers): Promise<CoordinatorFixture> {
  const subjects: Subject[] = [];
  const foreign = await connect({ servers: servers.urls, maxReconnectAttempts: -1 });
  return {
    ttlMs: TTL_MS,
    async open(identity) {
      const subject = await Subject.connect({ urls: servers.urls, ttlMs: TTL_MS, ...identity });
      subjects.push(subject);
      return subject.nats;
    },
    async putForeign(store, value) {
      const reply = await foreign.request(`$KV.leases.${store}`, value);
      return reply.json<{ seq: number }>().seq;
    },
    pass: (ms) => Bun.sleep(ms),
    settle: (promise) => promise,
    async disconnect() {
      await servers.disconnect();
      await Promise.all(subjects.map((subject) => subject.disconnected()));
    },
    async reconnect() {
      await servers.reconnect();
      await Promise.all(subjects.map((subject) => subject.connected()));
    },
    async stop() {
      await foreign.close();
      await Promise.all(subjects.map((subject) => subject.nats.stop()));
      await servers.stop();
    },
  };
}

describeCoordinator("one nats-server", async () => {
  const server = await NatsServer.start();
  return await natsFixture({
    urls: [server.url],
    disconnect: () => server.kill(),
    reconnect: () => server.restart(),
    stop: () => server.stop(),
  });
});

describeCoordinator("a cluster of three, R3", async () => {
  const cluster = await NatsCluster.start(3);
  return await natsFixture({
    urls: cluster.urls,
    disconnect: () => Promise.reject(new Error("not in the small suite")),
    reconnect: () => Promise.reject(new Error("not in the small suite")),
    stop: () => cluster.stop(),
  });
}, { small: true });
