// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"encoding/json"
	"strings"
	"testing"
)

const small = `
requests: {cpu: 500m, memory: 1Gi, nvidia.com/gpu: 1}
limits: {cpu: 0.75, memory: 1.5Gi, nvidia.com/gpu: 1}
multiplier: {min: 2, max: 8}
`

func TestResolve(t *testing.T) {
	c := Parse(map[string]string{
		"small": small, "open": "limits: {cpu: 1}", "broken": "requests: {cpu: lots}", "huge": "requests: {memory: 7Ei}",
	})
	for _, tc := range []struct {
		name       string
		multiplier int32
		want       string // JSON, or a part of the error
	}{
		{"small", 2, `{"limits":{"cpu":"1500m","memory":"3Gi","nvidia.com/gpu":"2"},"requests":{"cpu":"1","memory":"2Gi","nvidia.com/gpu":"2"}}`},
		{"small", 8, `{"limits":{"cpu":"6","memory":"12Gi","nvidia.com/gpu":"8"},"requests":{"cpu":"4","memory":"8Gi","nvidia.com/gpu":"8"}}`},
		{"small", 1, `config.multiplier: "1" is not valid, want 2 to 8 for instance type small`},
		{"small", 9, `config.multiplier: "9" is not valid, want 2 to 8 for instance type small`},
		{"open", 1, `{"limits":{"cpu":"1"}}`},
		{"open", 1 << 30, `{"limits":{"cpu":"1073741824"}}`},
		{"open", 0, `config.multiplier: "0" is not valid, want 1 or more for instance type open`},
		{"open", -1, `config.multiplier: "-1" is not valid`},
		{"huge", 2, `config.multiplier: "2" is not valid, want less: the resources of instance type huge have no such multiple`},
		{"gone", 1, `config.instanceType: "gone" is not valid, want one of broken, huge, open, small`},
		{"broken", 1, `instance type "broken" of ConfigMap atoll-instance-types: requests.cpu: "lots" is not valid`},
	} {
		got, err := c.Resolve("config", tc.name, tc.multiplier)
		var text string
		if err != nil {
			text = err.Error()
		} else {
			content, _ := json.Marshal(got)
			text = string(content)
		}
		if !strings.Contains(text, tc.want) || err == nil && text != tc.want {
			t.Errorf("%s x %d:\n got %s\nwant %s", tc.name, tc.multiplier, text, tc.want)
		}
	}
	if _, err := (Catalogue{}).Resolve("config", "small", 1); err == nil || !strings.Contains(err.Error(), "which has none") {
		t.Errorf("without a ConfigMap: %v", err)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "at least one resource",
		"requests: {}":                           "at least one resource",
		"request: {cpu: 1}":                      `unknown field "request"`,
		"requests: {cpus: 1}":                    `requests: "cpus" is not valid, want cpu, memory`,
		"requests: {cpu: -1}":                    `requests.cpu: "-1" is not valid`,
		"requests: {cpu: [1]}":                   `requests.cpu: "[1]" is not valid`,
		"requests: {cpu: 2}\nlimits: {cpu: 1}":   `requests.cpu: "2" is not valid, want at most limits.cpu, 1`,
		"limits: {cpu: 1}\nmultiplier: {min: 0}": `multiplier.min: "0" is not valid, want 1 or more`,
		"limits: {cpu: 1}\nmultiplier: {max: 0}": `multiplier.max: "0" is not valid, want 1 or more`,
		"limits: {cpu: 1}\nmultiplier: {min: 3, max: 2}": `multiplier.max: "2" is not valid, want 3 or more`,
		"limits: {cpu: 1}\nmultiplier: {max: 1.5}":       "want requests, limits and multiplier",
		"- a list":                           "want requests, limits and multiplier",
		"limits: {cpu: 1}\nlimits: {cpu: 2}": "want requests, limits and multiplier",
	} {
		if _, err := parseType(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// FuzzParse: whatever a ConfigMap contains, nothing panics, and a resolved type has resources.
func FuzzParse(f *testing.F) {
	f.Add(small, int32(2))
	f.Add("limits: {cpu: 1e3}\nmultiplier: {max: 2147483647}", int32(1<<30))
	f.Add("requests: {memory: 9223372036854775807}", int32(3))
	f.Fuzz(func(t *testing.T, text string, multiplier int32) {
		got, err := Parse(map[string]string{"x": text}).Resolve("config", "x", multiplier)
		if err == nil && len(got.Requests) == 0 && len(got.Limits) == 0 {
			t.Errorf("%q x %d resolves to nothing", text, multiplier)
		}
	})
}
