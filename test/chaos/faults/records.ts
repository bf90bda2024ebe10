/**
 * What an operator does to credentials and records.
 * @module
 */
import { AGENT_NAMES, SERVER_NAMES } from "../world.ts";
import type { FaultKind } from "./kind.ts";

/** What an operator does to credentials and records. */
export const OPERATOR_FAULTS: FaultKind[] = [
  {
    name: "revoke credentials",
    area: "credentials",
    async inject({ servers, passwords }, random) {
      const users = random.chance(0.5) ? [random.pick(AGENT_NAMES)] : AGENT_NAMES;
      await servers.setPasswords(new Map(users.map((user) => [user, "revoked"])));
      const restored = new Map(users.map((user) => [user, passwords.get(user)!]));
      return { targets: users, heal: () => servers.setPasswords(restored) };
    },
  },
  {
    name: "delete entry",
    area: "records",
    async inject(world, random) {
      const store = random.pick(world.plan.stores);
      await world.operator.deleteEntry(store);
      return { targets: SERVER_NAMES, detail: store };
    },
  },
  {
    name: "overwrite entry",
    area: "records",
    async inject(world, random) {
      const store = random.pick(world.plan.stores);
      const node = random.pick(["intruder", ...AGENT_NAMES]);
      await world.operator.overwriteEntry(store, node);
      return { targets: SERVER_NAMES, detail: `${store} by ${node}` };
    },
  },
  {
    name: "replace entry",
    area: "records",
    async inject(world, random) {
      const store = random.pick(world.plan.stores);
      await world.operator.deleteEntry(store);
      await world.operator.overwriteEntry(store, "intruder");
      await world.operator.deleteEntry(store);
      return { targets: SERVER_NAMES, detail: store };
    },
  },
  {
    name: "delete bucket",
    area: "records",
    async inject(world) {
      await world.operator.deleteBucket();
      return { targets: SERVER_NAMES };
    },
  },
  {
    name: "recreate bucket",
    area: "records",
    async inject(world) {
      await world.operator.recreateBucket();
      return { targets: SERVER_NAMES };
    },
  },
];
