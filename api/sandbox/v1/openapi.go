// SPDX-License-Identifier: Apache-2.0

package sandboxv1

import _ "embed"

// OpenAPI is the OpenAPI document of the REST API, generated from the protobuf.
//
//go:embed openapi.swagger.json
var OpenAPI []byte
