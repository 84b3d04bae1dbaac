// SPDX-License-Identifier: Apache-2.0

// Package sandboxv1 is the public API: messages, gRPC services and their translation from REST, generated from
// sandbox.proto and sandbox_http.yaml.
package sandboxv1

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
)

// OpenAPI is the OpenAPI 3.1 document of a hub's REST API, generated from sandbox.proto, sandbox_http.yaml and sandbox_openapi.yaml.
//
//go:embed openapi.json
var OpenAPI []byte

// WorkerOpenAPI returns OpenAPI without what only a hub serves.
func WorkerOpenAPI() ([]byte, error) {
	hubOnly := []string{"Files", "Clusters", "Pki", "Hub", "Keys", "Access", "Templates"}
	catalogue := []any{"putEnv", "deleteEnv", "planEnv", "importEnv", "listEnvRevisions", "getRollout", "controlRollout"}
	var document map[string]any
	if err := json.Unmarshal(OpenAPI, &document); err != nil {
		return nil, fmt.Errorf("reading the OpenAPI document: %w", err)
	}
	isHubOnly := func(tag any) bool { return slices.ContainsFunc(hubOnly, func(name string) bool { return tag == name }) }
	paths, _ := document["paths"].(map[string]any)
	for path, operations := range paths {
		operations, _ := operations.(map[string]any)
		for verb, operation := range operations {
			operation, _ := operation.(map[string]any)
			tags, _ := operation["tags"].([]any)
			if slices.ContainsFunc(tags, isHubOnly) || slices.Contains(catalogue, operation["operationId"]) {
				delete(operations, verb)
			}
		}
		if len(operations) == 0 {
			delete(paths, path)
		}
	}
	tags, _ := document["tags"].([]any)
	document["tags"] = slices.DeleteFunc(tags, func(tag any) bool {
		named, _ := tag.(map[string]any)
		return isHubOnly(named["name"])
	})
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the OpenAPI document: %w", err)
	}
	return text, nil
}
