// SPDX-License-Identifier: Apache-2.0

package sandboxcache

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// owned is a set of managed fields: its leaves, and all fields below them. The key anyItem stands for every item of a list.
type owned map[string]owned

const anyItem = "k:"

// needed are the fields whose owners package replicas reads.
var needed = owned{"f:spec": {
	"f:replicas":    nil,
	"f:templateRef": nil,
	"f:clusters":    {anyItem: {"f:members": {anyItem: {"f:spec": {"f:replicas": nil}}}}},
}}

// readFields returns the managed fields whose owners are read, or nil if there are none. All managed fields of a pool's template take more
// memory than the template.
func readFields(fields *metav1.FieldsV1) *metav1.FieldsV1 {
	if fields == nil {
		return nil
	}
	kept := needed.of(fields.GetRawBytes())
	if kept == nil {
		return nil
	}
	content, err := json.Marshal(kept)
	if err != nil {
		return fields
	}
	return metav1.NewFieldsV1(string(content))
}

// of returns the intersection of o and the given set, or nil if it is empty.
func (o owned) of(content json.RawMessage) (kept owned) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(content, &fields) != nil {
		return nil
	}
	for key, below := range fields {
		wanted, ok := o[key]
		if !ok && strings.HasPrefix(key, anyItem) {
			wanted, ok = o[anyItem]
		}
		if !ok {
			continue
		}
		part := owned{}
		if wanted != nil {
			if part = wanted.of(below); part == nil {
				continue
			}
		}
		if kept == nil {
			kept = owned{}
		}
		kept[key] = part
	}
	return kept
}
