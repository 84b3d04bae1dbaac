// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Operation is one step of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Test fails the patch unless a value is unchanged.
func Test(path string, value any) Operation { return Operation{"test", path, value} }

// Add adds a value.
func Add(path string, value any) Operation { return Operation{"add", path, value} }

// Replace replaces a value.
func Replace(path string, value any) Operation { return Operation{"replace", path, value} }

// AsRead returns the tests with which a patch applies only to the version of the object that was read.
func AsRead(obj metav1.Object) []Operation {
	return []Operation{Test("/metadata/uid", obj.GetUID()), Test("/metadata/resourceVersion", obj.GetResourceVersion())}
}

// JSON returns the body of a patch of these operations.
func JSON(operations []Operation) ([]byte, error) {
	body, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encoding a JSON patch: %w", err)
	}
	return body, nil
}
