/**
 * Self-made certificates for tests of TLS: X.509 written in DER by hand, so that no other tool is
 * needed.
 * @module
 */
import { generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";

/** A certificate and its key, as PEM. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

/** From when until when, in milliseconds from now. */
export interface Validity {
  readonly fromMs: number;
  readonly untilMs: number;
}

/** A certificate that signs others. */
export interface Authority extends Certificate {
  /** Issues a certificate for 127.0.0.1, for servers and clients; valid for a day before and after. */
  issue(commonName: string, validity?: Validity): Certificate;
}

const SEQUENCE = 0x30;
const ECDSA_SHA256 = tlv(SEQUENCE, oid("1.2.840.10045.4.3.2"));
const DAY_MS = 86_400_000;

/** Makes an authority. */
export function makeAuthority(commonName: string): Authority {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const signer = { name: nameOf(commonName), key: privateKey };
  const cert = certify({ commonName, publicKey, signer, authority: true });
  return {
    cert,
    key: pemKey(privateKey),
    issue(subject, validity) {
      const pair = generateKeyPairSync("ec", { namedCurve: "P-256" });
      return {
        cert: certify({
          commonName: subject,
          publicKey: pair.publicKey,
          signer,
          authority: false,
          validity,
        }),
        key: pemKey(pair.privateKey),
      };
    },
  };
}

interface Request {
  readonly commonName: string;
  readonly publicKey: KeyObject;
  readonly signer: { readonly name: Buffer; readonly key: KeyObject };
  readonly authority: boolean;
  readonly validity?: Validity;
}

function certify(request: Request): string {
  const { commonName, publicKey, signer, authority } = request;
  const { fromMs, untilMs } = request.validity ?? { fromMs: -DAY_MS, untilMs: DAY_MS };
  const version3 = tlv(0xa0, integer(Buffer.from([2])));
  const serial = integer(Buffer.concat([Buffer.from([1]), randomBytes(8)]));
  const validity = tlv(SEQUENCE, time(Date.now() + fromMs), time(Date.now() + untilMs));
  const spki = publicKey.export({ type: "spki", format: "der" });
  const basic = extension("2.5.29.19", tlv(SEQUENCE, ...(authority ? [boolean(true)] : [])), true);
  // An IP address (context tag 7) in the subject's alternative names.
  const names = extension("2.5.29.17", tlv(SEQUENCE, tlv(0x87, Buffer.from([127, 0, 0, 1]))));
  const extensions = tlv(0xa3, tlv(SEQUENCE, basic, names));
  const subject = nameOf(commonName);
  const body = tlv(
    SEQUENCE,
    version3,
    serial,
    ECDSA_SHA256,
    signer.name,
    validity,
    subject,
    spki,
    extensions,
  );
  const signature = sign("sha256", body, signer.key);
  return pem("CERTIFICATE", tlv(SEQUENCE, body, ECDSA_SHA256, bits(signature)));
}

function tlv(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 0x80
    ? [length]
    : length < 0x100
    ? [0x81, length]
    : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

function integer(value: Buffer): Buffer {
  return tlv(0x02, value);
}

function boolean(value: boolean): Buffer {
  return tlv(0x01, Buffer.from([value ? 0xff : 0]));
}

function bits(value: Buffer): Buffer {
  return tlv(0x03, Buffer.from([0]), value);
}

function oid(text: string): Buffer {
  const [first, second, ...rest] = text.split(".").map(Number);
  const bytes = [first * 40 + second];
  for (const arc of rest) {
    const groups = [arc & 0x7f];
    for (let high = arc >> 7; high > 0; high >>= 7) groups.unshift((high & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return tlv(0x06, Buffer.from(bytes));
}

function time(ms: number): Buffer {
  const text = new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, "").slice(2);
  return tlv(0x17, Buffer.from(text));
}

function nameOf(commonName: string): Buffer {
  const attribute = tlv(SEQUENCE, oid("2.5.4.3"), tlv(0x0c, Buffer.from(commonName)));
  return tlv(SEQUENCE, tlv(0x31, attribute));
}

function extension(id: string, value: Buffer, critical = false): Buffer {
  return tlv(SEQUENCE, oid(id), ...(critical ? [boolean(true)] : []), tlv(0x04, value));
}

function pem(label: string, der: Buffer): string {
  const lines = der.toString("base64").match(/.{1,64}/g)?.join("\n");
  return `-----BEGIN ${label}-----\n${lines}\n-----END ${label}-----\n`;
}

function pemKey(key: KeyObject): string {
  return key.export({ type: "pkcs8", format: "pem" }) as string;
}
