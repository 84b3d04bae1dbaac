// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

const (
	// Name of the ConfigMap with the limits.
	Name = "atoll-team-quotas"
	// Default is the entry for teams without one. No label value begins with an underscore.
	Default = "_default"
)

// Limits are the entries by team.
type Limits map[string]Entry

// Entry is the limit of a team, or the error of reading it.
type Entry struct {
	Limit
	Err error
}

// Limit is the maximum that a team may hold. A nil field means no limit.
type Limit struct {
	Replicas *int64
	CPU      *int64 // in thousandths
	Memory   *int64 // in bytes
}

// Of returns the entry for a team.
func (l Limits) Of(team string) Entry {
	if entry, ok := l[team]; ok {
		return entry
	}
	return l[Default]
}

// Parse parses the data of the ConfigMap, each entry separately.
func Parse(data map[string]string) Limits {
	limits := Limits{}
	for team, text := range data {
		limit, err := parse(text)
		if err != nil {
			err = fmt.Errorf("ConfigMap %s, key %s: %w", Name, team, err)
		}
		limits[team] = Entry{Limit: limit, Err: err}
	}
	return limits
}

func parse(text string) (Limit, error) {
	var raw struct {
		MaxReplicas *int64             `json:"maxReplicas"`
		CPU         *resource.Quantity `json:"cpu"`
		Memory      *resource.Quantity `json:"memory"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &raw); err != nil {
		return Limit{}, fmt.Errorf("want YAML with maxReplicas (a whole number), cpu and memory (quantities): %w", err)
	}
	var limit Limit
	if n := raw.MaxReplicas; n != nil {
		if *n < 0 {
			return Limit{}, fmt.Errorf("maxReplicas %d is not valid, want 0 or more", *n)
		}
		limit.Replicas = n
	}
	for field, q := range map[string]*resource.Quantity{"cpu": raw.CPU, "memory": raw.Memory} {
		if q != nil && q.Sign() < 0 {
			return Limit{}, fmt.Errorf("%s %s is not valid, want 0 or more", field, q)
		}
	}
	if raw.CPU != nil {
		limit.CPU = new(raw.CPU.MilliValue())
	}
	if raw.Memory != nil {
		limit.Memory = new(raw.Memory.Value())
	}
	return limit, nil
}
