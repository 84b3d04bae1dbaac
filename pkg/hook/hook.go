// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Action is one hook.
type Action struct {
	Name    string           `json:"name,omitempty"`
	Exec    *Exec            `json:"exec,omitempty"`
	HTTP    *HTTP            `json:"http,omitempty"`
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	Retries *int32           `json:"retries,omitempty"`
}

// Exec runs a command in a container.
type Exec struct {
	Command   []string `json:"command"`
	Container string   `json:"container,omitempty"`
}

// HTTP sends a request to the Pod.
type HTTP struct {
	Port    int32            `json:"port"`
	Path    string           `json:"path,omitempty"`
	Scheme  string           `json:"scheme,omitempty"`
	Method  string           `json:"method,omitempty"`
	Headers map[string]Value `json:"headers,omitempty"`
	Body    Value            `json:"body,omitzero"`
}

// Encode returns the annotation for a Pod with these hooks, or "" if there are none.
func Encode(actions []Action) (string, error) {
	if len(actions) == 0 {
		return "", nil
	}
	data, err := json.Marshal(actions)
	if err != nil {
		return "", fmt.Errorf("encoding hooks: %w", err)
	}
	return string(data), nil
}

// Decode parses an annotation that Encode wrote. It validates the text as Parse does, because other writers may have changed it.
func Decode(text string) ([]Action, error) {
	if text == "" {
		return nil, nil
	}
	list, err := structs([]byte(text))
	if err != nil {
		return nil, err
	}
	actions, faults := Parse(list)
	if len(faults) > 0 {
		return nil, fmt.Errorf("%s is not valid, want %s", faults[0].Field, faults[0].Valid)
	}
	return actions, nil
}

// Title returns a name of the hook for messages, without anything that could be secret.
func (a *Action) Title(index int) string {
	kind := "http"
	if a.Exec != nil {
		kind = "exec"
	}
	if a.Name == "" {
		return fmt.Sprintf("hook %d (%s)", index, kind)
	}
	return fmt.Sprintf("hook %d (%s, %s)", index, kind, strconv.Quote(a.Name))
}
