// SPDX-License-Identifier: Apache-2.0

// Package sandboxv1 is the public API: messages, gRPC services and their translation from REST, generated from
// sandbox.proto and sandbox_http.yaml.
package sandboxv1

import _ "embed"

// OpenAPI is the OpenAPI 3.1 document of the REST API, generated from sandbox.proto, sandbox_http.yaml and sandbox_openapi.yaml.
//
//go:embed openapi.json
var OpenAPI []byte
