// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"io/fs"
	"regexp"
	"slices"
	"testing"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/charts"
)

// The chart's policies let users set the keys that the worker lets them set, on Envs and pools one more, which the hub's catalogue reads.
func TestPoliciesKnowTheKeysOfUsers(t *testing.T) {
	files, err := charts.Worker()
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)- name: open\s+expression: >-\s+\[(.*?)\]`)
	for name, more := range map[string][]string{
		"reserved-keys.yaml": {v1alpha1.CatalogRolloutAnnotationKey}, "sandboxes.yaml": nil, "pod-templates.yaml": nil,
	} {
		data, err := fs.ReadFile(files, "policies/"+name)
		if err != nil {
			t.Fatal(err)
		}
		match := list.FindSubmatch(data)
		if match == nil {
			t.Fatalf("%s has no list of keys", name)
		}
		var keys []string
		for _, key := range regexp.MustCompile(`"([^"]+)"`).FindAllSubmatch(match[1], -1) {
			keys = append(keys, string(key[1]))
		}
		slices.Sort(keys)
		if want := slices.Sorted(slices.Values(append(slices.Clone(v1alpha1.UserAnnotationKeys), more...))); !slices.Equal(keys, want) {
			t.Errorf("%s: %q, want %q", name, keys, want)
		}
	}
}
