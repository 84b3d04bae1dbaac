// SPDX-License-Identifier: Apache-2.0

// Package hook says what a post-start hook is. It is pure: hub and worker check a request's hooks with it, and the worker
// writes them on the Pod that it claims, and reads them from there, in its words.
//
// In a request, and on the Pod as the annotation agentbox.navix.sh/post-start-hooks, hooks are a JSON list:
//
//	[{"name": "env", "http": {"port": 49983, "path": "/init", "body": "{\"envVars\":{}}"}},
//	 {"exec": {"command": ["sh", "-c", "make warm"], "container": "main"}, "timeout": "30s", "retries": 2}]
//
//	name       for messages; up to 63 printable characters
//	exec       command (1 to 64 parts); container (default the first). Success is exit code 0.
//	http       port; path ("/"); scheme HTTP or HTTPS (HTTP; a certificate is not checked, as with kubelets' probes); method
//	           (GET, POST where there is a body); headers; body. Success is a status of 200 to 299: redirects are not followed.
//	timeout    of one try, 100ms to 5m (10s)
//	retries    after the first try, 0 to 20 (5)
//
// Up to 8 of them, in 32 KiB, one of exec and http each. They run one after the other; package worker/internal/hooks says
// when. Users who may read Pods of the namespace may read them until the Pod is idle again, and of a claim with a key the hub
// keeps the request, hooks included, until the key expires: a secret in a hook is one that those people share.
//
// The reference names the annotation and its list and leaves the form of an action open; the form is this package's.
package hook
