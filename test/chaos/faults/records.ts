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
    inject(world, random) {
      const users = random.chance(0.5) ? [random.pick(AGENT_NAMES)] : AGENT_NAMES;
      for (const user of users) world.servers.setPassword(user, "revoked");
      return {
        targets: users,
        heal() {
          for (const user of users) world.servers.setPassword(user, world.passwords.get(user)!);
        },
      };
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
