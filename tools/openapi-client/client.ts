// SPDX-License-Identifier: Apache-2.0

// Calls a hub by the types that openapi-typescript makes from its OpenAPI document: node client.js SERVER NAMESPACE ENV.
// An API key is in ATOLL_TOKEN, if the hub wants one. What the hub returned is written to responses.ts, as values of these types.

import { strict as assert } from "node:assert";
import { writeFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./atoll.js";

type Problem = components["schemas"]["Problem"];
type Sandbox = components["schemas"]["WholeSandbox"];
type SandboxEvent = components["schemas"]["SandboxEvent"];

const [server = "", namespace = "", env = ""] = process.argv.slice(2);
const token = process.env["ATOLL_TOKEN"];
type Media = "application/json" | "application/problem+json" | "text/plain"; // not a watch's events
const api = createClient<paths, Media>({ baseUrl: server, headers: token ? { Authorization: `Bearer ${token}` } : {} });
const key = `openapi/client ${process.pid}`;
const labels = { client: String(process.pid) };
const labelSelector = `client=${process.pid}`;
const claim = { params: { header: { "Idempotency-Key": key } }, body: { namespace, env, user: "ada", labels } };

const responses = ['import type { components, paths } from "./atoll.js";'];

/** keep writes down that the hub returned a value of a type. */
function keep(type: string, json: string): void {
  responses.push(`export const response${responses.length}: ${type} = ${json};`);
}

api.use({
  async onResponse({ request, response, schemaPath }) {
    const media = response.headers.get("Content-Type") ?? "";
    if (media.endsWith("json")) {
      const at = [schemaPath, request.method.toLowerCase(), "responses"].map((name) => JSON.stringify(name)).join("][");
      keep(`paths[${at}][${response.status}]["content"][${JSON.stringify(media)}]`, await response.clone().text());
    }
  },
});

function told(what: string, value: string): void {
  console.log(`${what}: ${value}`);
}

/** done returns the data of a call, or fails with its problem. */
function done<T>(call: { data?: T; error?: Problem; response: Response }): T {
  assert(call.data !== undefined, `${call.response.url}: ${call.error?.reason} ${call.error?.detail}`);
  return call.data;
}

/** refused returns the problem of a call, and checks that the response is one. */
function refused<P extends Problem>(call: { data?: unknown; error?: P; response: Response }): P {
  assert(call.error !== undefined, `${call.response.url} was not refused`);
  assert.equal(call.response.headers.get("Content-Type"), "application/problem+json");
  assert.equal(call.error.status, call.response.status);
  return call.error;
}

const created: Sandbox = done(await api.POST("/v1/sandboxes", claim));
told("created", `${created.id} in ${created.clusterId}, ${created.phase}`);
const again = done(await api.POST("/v1/sandboxes", claim));
assert.equal(again.id, created.id);
told("the same key", again.id);

const params = { path: { id: created.id } };
const got = done(await api.GET("/v1/sandboxes/{id}", { params }));
assert.deepEqual([got.id, got.env, got.claimKey, got.phase], [created.id, env, key, "RUNNING"]);
const listed = done(await api.GET("/v1/sandboxes", { params: { query: { namespace, env, phase: "RUNNING", labelSelector, pageSize: 10 } } }));
assert.deepEqual(listed.sandboxes.map((sandbox) => [sandbox.id, sandbox.labels]), [[created.id, labels]]);
const others = done(await api.GET("/v1/sandboxes", { params: { query: { namespace, env, labelSelector: `client!=${process.pid}` } } }));
assert(!others.sandboxes.some((sandbox) => sandbox.id === created.id));
told("listed", `${listed.sandboxes.length}, others ${others.sandboxes.length}, unreachable ${listed.unreachableClusters.length}`);
const masked = done(await api.GET("/v1/sandboxes", { params: { query: { namespace, env, labelSelector, readMask: "id,phase" } } }));
assert.deepEqual(masked.sandboxes, [{ id: created.id, phase: "RUNNING" }]);
const known = done(await api.GET("/v1/claims/{claimKey}", { params: { path: { claimKey: key }, query: { namespace } } }));
assert.deepEqual([known.state, known.sandbox?.id], ["RUNNING", created.id]);
done(await api.POST("/v1/sandboxes/{id}:touch", { params, body: {} }));
const explained = done(await api.POST("/v1/envs/{namespace}/{name}:explain", {
  params: { path: { namespace, name: env } },
  body: { claimKey: key },
}));
told("explained", `${explained.reason}, ${explained.candidates.length} candidates`);
const log = await api.GET("/v1/sandboxes/{id}/logs", { params: { ...params, query: { tail: 5 } }, parseAs: "text" });
told("log", log.data === undefined ? `${log.error?.reason}: ${log.error?.detail}` : `${log.data.length} bytes`);

/** watch returns the events of the sandboxes of this program, until one is the last. */
async function watch(last: (event: SandboxEvent) => boolean, resumeToken?: string): Promise<SandboxEvent[]> {
  const query = { namespace, env, labelSelector, watch: true, ...(resumeToken === undefined ? {} : { resumeToken }) };
  const call = await api.GET("/v1/sandboxes", { params: { query }, parseAs: "stream" });
  assert(call.data, `${call.response.url}: ${call.error?.detail}`);
  assert.equal(call.response.headers.get("Content-Type"), "text/event-stream");
  const events: SandboxEvent[] = [];
  let text = "";
  for await (const part of call.data.pipeThrough(new TextDecoderStream())) {
    const blocks = (text += part).split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) {
      const data = block.split("\n").flatMap((line) => (line.startsWith("data: ") ? [line.slice("data: ".length)] : [])).join("\n");
      assert(!block.includes("event: ERROR"), data);
      keep('components["schemas"]["SandboxEvent"]', data);
      const event = JSON.parse(data) as SandboxEvent;
      events.push(event);
      if (last(event)) {
        return events;
      }
    }
  }
  assert.fail(`the watch is over after ${events.length} events`);
}

const begun = await watch((event) => event.type === "BOOKMARK");
assert.deepEqual(begun.map((event) => [event.type, event.sandbox?.id]), [["ADDED", created.id], ["BOOKMARK", undefined]]);
const resumeToken = begun.at(-1)?.resumeToken ?? "";
told("watched", begun.map((event) => event.type).join(", "));
const other = Buffer.from(resumeToken, "base64url");
other[9]! ^= 1; // of a server that has restarted
const query = { namespace, env, labelSelector, watch: true, resumeToken: other.toString("base64url") };
const gone = refused(await api.GET("/v1/sandboxes", { params: { query } }));
assert.deepEqual([gone.status, gone.reason], [410, "EXPIRED"]);
told("an old resumeToken", `${gone.status} ${gone.reason}: ${gone.detail}`);

const conflict = refused(await api.POST("/v1/sandboxes", { ...claim, body: { ...claim.body, user: "bob" } }));
assert.deepEqual([conflict.status, conflict.reason, conflict.claimKey], [409, "CLAIM_KEY_CONFLICT", key]);
told("other parameters", `${conflict.status} ${conflict.reason}`);
const invalid = refused(await api.POST("/v1/sandboxes", { body: { namespace, env: "", multiplier: -1 } }));
const fields = (invalid.errors ?? []).map((fault) => `${fault.field}=${fault.value}, want ${fault.valid}`);
assert.equal(fields.length, 2);
told("wrong fields", fields.join("; "));
const missing = refused(await api.GET("/v1/clusters/{id}", { params: { path: { id: "nowhere" } } }));
assert.equal(missing.reason, "NOT_FOUND");
told("no such cluster", missing.detail);

const template = {
  apiVersion: "agents.navix.sh/v1alpha1",
  kind: "SandboxTemplate",
  metadata: { name: `client-${process.pid}` },
  spec: { version: "v1.0.0", template: { spec: { containers: [{ name: "main", image: "registry.example/client" }] } } },
};
const named = { params: { path: { name: template.metadata.name } } };
const put = done(await api.PUT("/v1/templates/{name}", { ...named, body: template }));
const stored = done(await api.GET("/v1/templates/{name}", named));
assert.deepEqual([stored.name, stored.catalog?.revision, stored.template?.["kind"]], [put.name, 1, template.kind]);
const templates = done(await api.GET("/v1/templates"));
assert(templates.templates.some((one) => one.name === put.name));
done(await api.DELETE("/v1/templates/{name}", named));
const deleted = refused(await api.GET("/v1/templates/{name}", named));
assert.equal(deleted.reason, "NOT_FOUND");
told("a template", `revision ${stored.catalog?.revision} of ${stored.name}, deleted: ${deleted.detail}`);

const released = done(await api.DELETE("/v1/sandboxes/{id}", { params }));
assert(released.phase === "STOPPING" || released.phase === "ENDED", released.phase);
told("released", released.phase);
const ended = await watch((event) => event.type === "DELETED", resumeToken);
assert.deepEqual([ended.at(-1)?.sandbox?.id, ended.at(-1)?.sandbox?.stopReason], [created.id, "Released"]);
told("watched further", ended.map((event) => event.type).join(", "));
writeFileSync("responses.ts", responses.join("\n") + "\n");
told("responses", String(responses.length - 1));

/** What the types refuse. It is compiled and never called. */
export async function wrong(): Promise<void> {
  // @ts-expect-error env is required
  await api.POST("/v1/sandboxes", { body: { namespace } });
  // @ts-expect-error a duration is text
  await api.POST("/v1/sandboxes", { body: { env, idleTimeout: 90 } });
  // @ts-expect-error no such phase
  await api.GET("/v1/sandboxes", { params: { query: { phase: "NAPPING" } } });
  // @ts-expect-error no such operation
  await api.PATCH("/v1/templates/{name}", { params: { path: { name: env } } });
  // @ts-expect-error which template?
  await api.GET("/v1/templates/{name}", { params: { path: {} } });
  const { error } = await api.GET("/v1/clusters");
  // @ts-expect-error no such field of a problem
  error?.message;
  const { data } = await api.GET("/v1/sandboxes");
  // @ts-expect-error a list with readMask may leave it out
  data?.sandboxes[0]?.podIp.length;
}
