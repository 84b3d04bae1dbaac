// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"testing"

	"sigs.k8s.io/yaml"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
)

// An object whose record another replica has just written is not refused: it is taken once this replica knows of that write.
func TestAnObjectIsNotRefusedForAnotherWrite(t *testing.T) {
	w := newWorld(t)
	behind := w.Service
	w.restart() // another replica
	take := func(s *Service) error {
		data, err := yaml.YAMLToJSON([]byte(envText))
		must.Succeed(t, err)
		o, err := manifest.Parse(data)
		must.Succeed(t, err)
		return s.Take(t.Context(), Sourced{UID: "u", Generation: 1, By: "kubectl", Manifest: o})
	}
	must.Succeed(t, take(w.Service))
	workertest.WantReason(t, take(behind), problem.Unavailable)
	must.Succeed(t, behind.load(t.Context()))
	must.Succeed(t, take(behind))
}

// I4: what becomes of an object of the hub's own cluster, by what was last taken from it.
func TestI4Weigh(t *testing.T) {
	last := &origin{UID: "u", Generation: 5, Hash: "h", Revision: 3}
	back := &origin{UID: "u", Generation: 2, Hash: "h", Revision: 3, SetBack: true}
	for _, tt := range []struct {
		name       string
		last       *origin
		uid        string
		generation int64
		hash       string
		want       action
	}{
		{"a new one", nil, "u", 1, "h", takeIt},
		{"the same", last, "u", 5, "h", takeNothing},
		{"a change", last, "u", 6, "x", takeIt},
		{"an annotation", last, "u", 5, "x", takeIt},
		{"a change and back", last, "u", 7, "h", takeNote},
		{"another object of the name", last, "v", 1, "x", takeIt},
		{"it went back", last, "u", 2, "x", takeSetBack},
		{"it went back to the same", last, "u", 2, "h", takeNote},
		{"it stays back", back, "u", 2, "x", stillSetBack},
		{"it changes from there", back, "u", 3, "x", takeIt},
		{"it becomes what is there", back, "u", 3, "h", takeNote},
		{"it goes back further", back, "u", 1, "x", takeSetBack},
	} {
		if got := tt.last.actionFor(tt.uid, tt.generation, tt.hash); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}
