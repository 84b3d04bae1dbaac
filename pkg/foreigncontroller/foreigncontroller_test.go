// SPDX-License-Identifier: Apache-2.0

package foreigncontroller

import (
	"math"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) *metav1.Time {
	return &metav1.Time{Time: noon.Add(time.Duration(seconds) * time.Second)}
}

func TestStatusWrite(t *testing.T) {
	entry := func(manager, subresource string, t *metav1.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: t}
	}
	for _, tt := range []struct {
		name    string
		fields  []metav1.ManagedFieldsEntry
		manager string // "": none
	}{
		{"no writer", nil, ""},
		{"we wrote", []metav1.ManagedFieldsEntry{entry("atoll-worker", "status", at(1))}, ""},
		{"the sync path wrote", []metav1.ManagedFieldsEntry{entry("atoll-worker", "status", at(1)), entry("atoll-sync", "status", at(2))}, ""},
		{"another wrote, we never did", []metav1.ManagedFieldsEntry{entry("manager", "status", at(1))}, "manager"},
		{"another wrote after us", []metav1.ManagedFieldsEntry{entry("manager", "status", at(2)), entry("atoll-worker", "status", at(1))},
			"manager"},
		{"another wrote in the same second", []metav1.ManagedFieldsEntry{entry("atoll-worker", "status", at(1)),
			entry("manager", "status", at(1))}, "manager"},
		{"another wrote before us", []metav1.ManagedFieldsEntry{entry("manager", "status", at(1)), entry("atoll-worker", "status", at(2))}, ""},
		{"another wrote the spec", []metav1.ManagedFieldsEntry{entry("helm", "", at(9)), entry("atoll-worker", "status", at(1))}, ""},
		{"an autoscaler scaled", []metav1.ManagedFieldsEntry{entry("kube-controller-manager", "scale", at(9)),
			entry("atoll-worker", "status", at(1))}, ""},
		{"a person edited", []metav1.ManagedFieldsEntry{entry("kubectl-edit", "status", at(9)), entry("atoll-worker", "status", at(1))}, ""},
		{"the last of two others", []metav1.ManagedFieldsEntry{entry("a", "status", at(2)), entry("b", "status", at(3))}, "b"},
		{"no time", []metav1.ManagedFieldsEntry{entry("manager", "status", nil)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, foreign := StatusWrite(&metav1.ObjectMeta{ManagedFields: tt.fields})
			if foreign != (tt.manager != "") || foreign && w.Manager != tt.manager {
				t.Errorf("got %+v, %t, want %q", w, foreign, tt.manager)
			}
		})
	}
}

func TestLeases(t *testing.T) {
	lease := func(namespace, name, holder string, made int) coordinationv1.Lease {
		l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: *at(made)}}
		if holder != "" {
			l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &holder, new(int32(math.MaxInt32))
		}
		return l
	}
	ours := lease("atoll-system", "atoll-worker", "us", 10)
	for _, tt := range []struct {
		name  string
		other coordinationv1.Lease
		want  Reason
	}{
		{"the former controller", lease("sandbox", "1a2b3c4d.agents.navix.sh", "x", 20), LeaseHeld},
		{"the former API server", lease("sandbox", "sandbox-api-server", "x", 20), LeaseHeld},
		{"the former controller, gone", lease("sandbox", "1a2b3c4d.agents.navix.sh", "", 20), ""},
		{"one that was named", lease("sandbox", "pools", "x", 20), LeaseHeld},
		{"an older installation", lease("atoll-old", "atoll-worker", "x", 0), OlderInstallation},
		{"a younger installation", lease("atoll-new", "atoll-worker", "x", 20), ""},
		{"of the same age, first by name", lease("atoll-a", "atoll-worker", "x", 10), OlderInstallation},
		{"of the same age, last by name", lease("atoll-z", "atoll-worker", "x", 10), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, all := range [][]coordinationv1.Lease{{ours, tt.other}, {tt.other, ours}} {
				// I14: a lease counts only if it was named.
				if found := Leases(all, "atoll-system", []string{"elsewhere/" + tt.other.Name, tt.other.Namespace + "/x"}); len(found) > 0 {
					t.Errorf("without having been named it counts: %+v", found)
				}
				if found := Suspects(all, "atoll-system"); (len(found) > 0) != (tt.want != "" && tt.other.Name != "pools") {
					t.Errorf("suspected: %+v", found)
				}
				found := Leases(all, "atoll-system", []string{"x/y", tt.other.Namespace + "/" + tt.other.Name})
				switch {
				case tt.want == "" && len(found) > 0:
					t.Errorf("found %+v", found)
				case tt.want != "" && (len(found) != 1 || found[0].Reason != tt.want || found[0].Duration != time.Minute):
					t.Errorf("found %+v, want %s", found, tt.want)
				}
			}
		})
	}
	if found := Leases([]coordinationv1.Lease{lease("b", "atoll-worker", "x", 0)}, "a", []string{"b/atoll-worker"}); len(found) != 1 {
		t.Error("without a lease of our own another's is not older")
	}
}
