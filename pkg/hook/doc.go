// SPDX-License-Identifier: Apache-2.0

// Package hook defines post-start hooks. It is pure. Hub and worker validate a request's hooks with it. The worker writes them
// on the claimed Pod in this format, and reads them back from there.
//
// In a request, and in the Pod's annotation agentbox.navix.sh/post-start-hooks, hooks are a JSON list:
//
//	[{"name": "env", "http": {"port": 49983, "path": "/init", "body": "{\"envVars\":{}}"}},
//	 {"exec": {"command": ["sh", "-c", "make warm"], "container": "main"}, "timeout": "30s", "retries": 2}]
//
//	name       for messages; up to 63 printable characters
//	exec       command (1 to 64 parts); container (default the first). Success is exit code 0.
//	http       port; path ("/"); scheme HTTP or HTTPS (HTTP; a certificate is not checked, as with kubelets' probes); method
//	           (GET, POST where there is a body); headers; body. Success is a status of 200 to 299: redirects are not followed.
//	           A header's value, or the body, is a string or {"valueFrom": {"secretKeyRef": {"name": "…", "key": "…"}}}
//	timeout    of one try, 100ms to 5m (10s)
//	retries    after the first try, 0 to 20 (5)
//
// A request has up to 8 hooks in 32 KiB; each has either exec or http. They run one after the other; package
// worker/internal/hooks defines when. Users who may read Pods of the namespace may read the hooks until the Pod is idle again.
// For a claim with a key, the hub keeps the request with its hooks until the key expires. So a secret that stands in a hook is
// shared with these users. One that the hook refers to is not: request, annotation and store have the reference, and the worker
// reads the Secret for each try; see package worker/internal/hooks for which Secrets.
//
// The reference names the annotation and its list, but not the format of an action; this package defines it.
package hook
