// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/manifest"
)

func TestDecideBatches(t *testing.T) {
	template := func(n, size int) part {
		annotations := map[string]any{"padding": ""}
		object := manifest.Object{
			"kind": manifest.TemplateKind, "metadata": map[string]any{"name": fmt.Sprint("t", n), "annotations": annotations},
		}
		data, err := object.Encode()
		must.Succeed(t, err)
		annotations["padding"] = strings.Repeat("x", size-len(data))
		return part{ref: object.Ref(), revision: 1, whole: object}
	}
	for name, tt := range map[string]struct {
		number, size int // of each; 0: it is removed
		want         []int
	}{
		"none":                {0, 0, nil},
		"few at a time":       {45, 0, []int{20, 20, 5}},
		"just full":           {5, maxBatch / 2, []int{2, 2, 1}},
		"a little over half":  {3, maxBatch/2 + 1, []int{1, 1, 1}},
		"one that is too big": {2, 2 * maxBatch, []int{1, 1}},
		"small ones":          {21, 1000, []int{20, 1}},
	} {
		var parts []part
		for n := range tt.number {
			if tt.size == 0 {
				parts = append(parts, part{ref: manifest.Ref{Kind: manifest.TemplateKind, Name: fmt.Sprint("t", n)}, revision: 1})
			} else {
				parts = append(parts, template(n, tt.size))
			}
		}
		all, err := batches("east", parts)
		must.Succeed(t, err)
		var got []int
		for _, batch := range all {
			got = append(got, len(batch))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: batches of %v, want %v", name, got, tt.want)
		}
	}
	if maxBatch != 262144 {
		t.Errorf("a call has up to %d bytes, want 256 KiB", maxBatch)
	}
}

// The hub's own cluster has what was taken from it, and gets what was put by the API, with the templates that this names.
func TestDecideOwnParts(t *testing.T) {
	env := func(name, template string, from *origin) *record {
		object := manifest.Object{"kind": manifest.EnvKind, "metadata": map[string]any{"name": name, "namespace": "default"},
			"spec": map[string]any{"templateRef": map[string]any{"name": template}, "clusters": []any{map[string]any{"clusterID": "east"}}}}
		return &record{Ref: object.Ref(), Revision: 1, Manifest: []byte("{}"), Source: from, object: object, in: sets.New("east")}
	}
	template := func(name string, from *origin) *record {
		object := manifest.Object{"kind": manifest.TemplateKind, "metadata": map[string]any{"name": name}}
		return &record{Ref: object.Ref(), Revision: 1, Manifest: []byte("{}"), Source: from, object: object}
	}
	s := &state{records: map[string]*record{}}
	for _, r := range []*record{
		env("taken", "own", &origin{}), env("put", "shared", nil), template("own", &origin{}), template("shared", nil), template("unused", nil),
		env("taken-too", "put", &origin{}), template("put", nil),
	} {
		s.records[keyOf(r.Ref)] = r
	}
	names := func(parts []part) string {
		var out []string
		for _, p := range parts {
			out = append(out, p.ref.Name)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	for range 20 { // records come in any order
		have, gone, _ := s.parts("east", true, func(manifest.Ref) bool { return true })
		if got := names(have) + "; " + names(gone); got != "put put shared; unused" {
			t.Fatalf("the hub's own cluster has %s", got)
		}
		have, gone, _ = s.parts("east", false, func(manifest.Ref) bool { return true })
		if got := names(have) + "; " + names(gone); got != "own put put shared taken taken-too; unused" {
			t.Fatalf("another cluster has %s", got)
		}
	}
}

// I4, I5: what is sent to a cluster, and what is removed from it, by the revisions that it has, is to have, and may have.
func TestI4Decide(t *testing.T) {
	ref := manifest.Ref{Kind: manifest.TemplateKind, Name: "base"}
	took := func(revision int32) clusterStatus {
		return clusterStatus{State: sandboxv1.CatalogCluster_APPLIED, Revision: revision}
	}
	for name, tt := range map[string]struct {
		at, target, latest int32 // at 0: it has none
		told               clusterStatus
		have, gone         string
	}{
		"it has none":                          {0, 1, 1, clusterStatus{}, "apply", ""},
		"it has an earlier one":                {1, 2, 2, took(1), "apply", "remove"},
		"it has taken it":                      {2, 2, 2, took(2), "", "remove"},
		"it has another one of the number":     {2, 2, 2, took(1), "apply", "remove"},
		"it has refused one of the number":     {2, 2, 2, clusterStatus{Revision: 2}, "apply", "remove"},
		"it has a later one":                   {3, 2, 2, took(3), "newer", "newer"},
		"it is held back":                      {1, 1, 3, took(1), "", "remove"},
		"it is held back, and has one between": {2, 1, 3, took(2), "", ""},
		"it is held back, and has the latest":  {3, 1, 3, took(3), "", ""},
		"it is held back, and has a later one": {4, 1, 3, took(4), "newer", "newer"},
	} {
		held := map[string]int32{}
		if tt.at > 0 {
			held[keyOf(ref)] = tt.at
		}
		p, again := []part{{ref: ref, revision: tt.target, latest: tt.latest}}, func(string, int32) bool { return true }
		what := func(out pending) string {
			switch {
			case len(out.apply) > 0:
				return "apply"
			case len(out.remove) > 0:
				return "remove"
			case len(out.newer) > 0:
				return "newer"
			}
			return ""
		}
		told := statuses{keyOf(ref): tt.told}
		if got := what(decide(p, nil, held, told, again)); got != tt.have {
			t.Errorf("%s: what it is to have: %q, want %q", name, got, tt.have)
		}
		if got := what(decide(nil, p, held, told, again)); got != tt.gone {
			t.Errorf("%s: what it is to have no more: %q, want %q", name, got, tt.gone)
		}
	}
}

func TestDecideTargetOfARollout(t *testing.T) {
	now, before := manifest.Object{"kind": manifest.EnvKind, "new": true}, manifest.Object{"kind": manifest.EnvKind}
	staged := func(from manifest.Object) *record {
		return &record{Revision: 2, object: now, in: sets.New("east", "west"), Rollout: &rollout{
			Plan: manifest.Plan{Stages: [][]string{{"east"}, {"west"}}}, State: sandboxv1.Rollout_RUNNING, FromRevision: 1, before: from,
			in: sets.New("west"),
		}}
	}
	for name, tt := range map[string]struct {
		record   *record
		cluster  string
		known    bool
		revision int32
		whole    bool
	}{
		"of the stage":             {staged(before), "east", true, 2, true},
		"of a later stage":         {staged(before), "west", true, 1, true},
		"new in a later stage":     {staged(nil), "west", false, 2, false},
		"neither before nor after": {staged(before), "north", true, 1, false},
	} {
		p, known := tt.record.target(tt.cluster)
		if known != tt.known || p.revision != tt.revision || (p.whole != nil) != tt.whole {
			t.Errorf("%s: revision %d, known %t, whole %v", name, p.revision, known, p.whole)
		}
	}
}
