/**
 * What a hostile client sends, from a seed.
 * @module
 */

/** Numbers in [0, 1) from a seed: mulberry32. */
export function randomFrom(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const NASTY = [
  "",
  "\r",
  " ",
  "\0",
  "[]",
  "[[],{}]",
  "{}",
  "null",
  "1e999",
  '"',
  "{",
  "}",
  '{"jsonrpc":"2.0"}',
  '{"jsonrpc":"2.0","method":"held"}',
  '{"jsonrpc":"2.0","method":"__proto__","id":1}',
  '{"jsonrpc":"2.0","method":"held","id":{"$":1}}',
  '{"jsonrpc":"2.0","method":"held","id":1,"params":{"__proto__":{"store":"x"}}}',
  '{"jsonrpc":"2.0","method":"held","id":1,"params":{"store":"../../etc/passwd"}}',
  '{"jsonrpc":"2.0","method":"held","id":1,"params":["a"]}',
  '{"jsonrpc":"2.0","method":"held","id":1,"params":{"stores":[[[[]]]]}}',
  '{"jsonrpc":"2.0","method":"guard","id":1,"params":{"store":"a","wait_ms":-0.5}}',
  '{"jsonrpc":"2.0","method":"guard","params":{"store":"a"}}',
  '{"jsonrpc":"2.0","id":1,"result":{}}',
  '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
  '{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"held"}',
  '[{"jsonrpc":"2.0","method":"held","id":1}]',
];

const WELL_FORMED = [
  '{"jsonrpc":"2.0","id":"é","method":"held","params":{"store":"held"}}',
  '{"jsonrpc":"2.0","id":2,"method":"guard","params":{"store":"a","wait_ms":1000}}',
  '{"jsonrpc":"2.0","id":3.5,"method":"release","params":{"token":"x"}}',
];

/** One line of a hostile client, its newline not included, nor always the only one in it. */
export function hostileLine(random: () => number): Buffer {
  const choice = random();
  if (choice < 0.3) return Buffer.from(pick(NASTY, random));
  if (choice < 0.4) return noise(Math.floor(random() * 300), random);
  if (choice < 0.405) return Buffer.alloc(1_000_000 + Math.floor(random() * 200_000), 0x7b);
  if (choice < 0.41) return Buffer.from("[".repeat(Math.floor(random() * 200_000)));
  if (choice < 0.5) return truncated(Buffer.from(pick(WELL_FORMED, random)), random);
  if (choice < 0.9) return mutated(Buffer.from(pick(WELL_FORMED, random)), random);
  return Buffer.from(pick(WELL_FORMED, random));
}

function pick<T>(from: readonly T[], random: () => number): T {
  return from[Math.floor(random() * from.length)];
}

function noise(bytes: number, random: () => number): Buffer {
  return Buffer.from(Array.from({ length: bytes }, () => Math.floor(random() * 256)));
}

function truncated(line: Buffer, random: () => number): Buffer {
  return line.subarray(0, Math.floor(random() * line.length));
}

function mutated(line: Buffer, random: () => number): Buffer {
  for (let i = 0; i <= random() * 3; i++) {
    line[Math.floor(random() * line.length)] = Math.floor(random() * 256);
  }
  return line;
}
