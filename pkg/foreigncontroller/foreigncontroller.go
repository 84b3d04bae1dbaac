// SPDX-License-Identifier: Apache-2.0

// Package foreigncontroller tells, from an object's managed fields and from leases, whether another controller keeps what Atoll would.
//
// In go objects and leases as they were read, out come findings with a typed reason. It is pure: how long something has been
// so is its callers' to measure, each on the one clock that it has (package worker/internal/foreigncontroller, pkg/doctor).
//
// Managed fields are bookkeeping and no protection: a controller that writes as "atoll-worker" is not told apart. Two
// installations of Atoll are, by their leases.
package foreigncontroller

import (
	"cmp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reason is what gives another controller away.
type Reason string

// The reasons.
const (
	// StatusWritten: a writer outside Atoll wrote the object's status after Atoll did.
	StatusWritten Reason = "StatusWrittenByAnother"
	// LeaseHeld: the controller that the API comes from has its lease.
	LeaseHeld Reason = "LeaseOfAnotherHeld"
	// OlderInstallation: another installation of Atoll in this cluster has had its lease for longer.
	OlderInstallation Reason = "OlderInstallation"
)

// Write is who last changed an object's status, and when by the API server's clock.
type Write struct {
	Manager string
	At      time.Time
}

// StatusWrite is the last write of the object's status by another controller, if no part of Atoll has written it since. A
// status that was edited with kubectl was edited by a person, who does not do it again.
func StatusWrite(object metav1.Object) (w Write, foreign bool) {
	var own time.Time
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource != "status" || entry.Time == nil {
			continue
		}
		switch at := entry.Time.Time; {
		case strings.HasPrefix(entry.Manager, "atoll-"):
			if at.After(own) {
				own = at
			}
		case strings.HasPrefix(entry.Manager, "kubectl"):
		case at.After(w.At), at.Equal(w.At) && entry.Manager < w.Manager:
			w = Write{Manager: entry.Manager, At: at}
		}
	}
	// Times are whole seconds. The order of two in one second is unknown.
	return w, w.Manager != "" && !own.After(w.At)
}

// Lease is another controller's lease.
type Lease struct {
	Namespace, Name, Holder string
	Reason                  Reason
	// Renewed tells one renewal from the next, and Duration is how long one lasts.
	Renewed  time.Time
	Duration time.Duration
}

// WorkerLease is the name of a worker's lease, in the namespace of its installation.
const WorkerLease = "atoll-worker"

// known are the leases of the system that the API comes from: names, and ends of names.
var known = []string{"sandbox-api-server", "agents.navix.sh", "agentbox.navix.sh"}

// A lease lasts from shortest to longest, whatever it says: one that is no longer renewed must not stop a worker for long.
const (
	shortest = 15 * time.Second
	longest  = time.Minute
)

// Leases finds the held ones among those that an operator has named as another controller's, as NAMESPACE/NAME. No other lease
// counts, whatever its name: who edits a namespace can make any. Of two installations of Atoll the one whose lease is older goes
// on, and the other finds it here.
func Leases(all []coordinationv1.Lease, namespace string, named []string) []Lease {
	return held(all, namespace, func(l *coordinationv1.Lease) bool { return slices.Contains(named, l.Namespace+"/"+l.Name) })
}

// Suspects finds the held leases that look like another controller's, or another installation's. Anybody who edits a namespace can
// make them so: they are for a person to look at, and nothing is decided by them.
func Suspects(all []coordinationv1.Lease, namespace string) []Lease {
	return held(all, namespace, func(l *coordinationv1.Lease) bool {
		return l.Name == WorkerLease || slices.ContainsFunc(known, func(name string) bool {
			return l.Name == name || strings.HasSuffix(l.Name, "."+name)
		})
	})
}

func held(all []coordinationv1.Lease, namespace string, wanted func(*coordinationv1.Lease) bool) []Lease {
	var out []Lease
	mine := slices.IndexFunc(all, func(l coordinationv1.Lease) bool { return l.Namespace == namespace && l.Name == WorkerLease })
	for i := range all {
		l := &all[i]
		if i == mine || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || !wanted(l) {
			continue
		}
		reason := LeaseHeld
		if l.Name == WorkerLease {
			if mine >= 0 && older(&all[mine], l) {
				continue
			}
			reason = OlderInstallation
		}
		found := Lease{Namespace: l.Namespace, Name: l.Name, Holder: *l.Spec.HolderIdentity, Reason: reason, Duration: shortest}
		if l.Spec.RenewTime != nil {
			found.Renewed = l.Spec.RenewTime.Time
		}
		if l.Spec.LeaseDurationSeconds != nil {
			found.Duration = min(max(shortest, time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second), longest)
		}
		out = append(out, found)
	}
	return out
}

// older orders installations by when they came.
func older(a, b *coordinationv1.Lease) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace)) < 0
}
