// SPDX-License-Identifier: Apache-2.0

// Package hook defines post-start hooks; it is pure. Hub and worker validate requests with it; the worker keeps hooks on the claimed Pod.
// Format, in a request and the annotation agentbox.navix.sh/post-start-hooks:
//
//	[{"name": "env", "http": {"port": 49983, "path": "/init", "body": "{\"envVars\":{}}"}},
//	 {"exec": {"command": ["sh", "-c", "make warm"], "container": "main"}, "timeout": "30s", "retries": 2}]
//
//	name       up to 63 printable characters
//	exec       command (1 to 64 parts); container (default the first). Success is exit code 0
//	http       port; path ("/"); scheme HTTP or HTTPS (HTTP; certificates unchecked); method (GET, POST with a
//	           body); headers; body. Success is 200 to 299; no redirects. A header's value, or the body, is a string or
//	           {"valueFrom": {"secretKeyRef": {"name": "…", "key": "…"}}}
//	timeout    of one try, 100ms to 5m (10s)
//	retries    after the first try, 0 to 20 (5)
//
// Rules:
//
//   - A request has up to 8 hooks in 32 KiB, each with exec or http. They run in order (package worker/internal/hooks).
//   - Hooks are stored on the Pod, where everyone who may read the Pod can see them, until it is idle again, and in the hub until the
//     claim's key expires. So a secret in a hook is exposed. A secret that a hook refers to is not: the worker reads it for each try.
//   - The reference does not define the format of an action; this package does.
package hook
