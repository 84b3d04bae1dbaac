// SPDX-License-Identifier: Apache-2.0

// Package foreigncontroller detects other controllers that write Atoll's objects, by managed fields and leases.
//
// In: objects and leases as read. Out: findings with a typed reason. It is pure: callers measure durations, each with its own clock
// (package worker/internal/foreigncontroller, pkg/doctor).
//
// Managed fields are bookkeeping, not protection: a controller that writes as "atoll-worker" is not detected. A second installation of
// Atoll is detected by its lease.
package foreigncontroller

import (
	"cmp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reason is the evidence for another controller.
type Reason string

// The reasons.
const (
	// StatusWritten: a writer outside Atoll wrote the object's status after Atoll did.
	StatusWritten Reason = "StatusWrittenByAnother"
	// LeaseHeld: the lease of the API's original controller is held.
	LeaseHeld Reason = "LeaseOfAnotherHeld"
	// OlderInstallation: another installation of Atoll in this cluster has an older lease.
	OlderInstallation Reason = "OlderInstallation"
)

// Write is the last change of an object's status: the writer, and the time by the API server's clock.
type Write struct {
	Manager string
	At      time.Time
}

// StatusWrite returns the last write of the object's status by another controller, unless Atoll has written the status since. Edits with
// kubectl do not count, because a user does not repeat them.
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
	// Times have whole seconds, so the order of two writes within one second is unknown.
	return w, w.Manager != "" && !own.After(w.At)
}

// Lease is another controller's lease.
type Lease struct {
	Namespace, Name, Holder string
	Reason                  Reason
	// Renewed distinguishes renewals, and Duration is the lease's duration.
	Renewed  time.Time
	Duration time.Duration
}

// WorkerLease is the name of a worker's lease, in the namespace of its installation.
const WorkerLease = "atoll-worker"

// known are the leases of the API's original system, as names and suffixes of names.
var known = []string{"sandbox-api-server", "agents.navix.sh", "agentbox.navix.sh"}

// Bounds of a lease's duration, whatever it declares: an abandoned lease must not stop a worker for long.
const (
	shortest = 15 * time.Second
	longest  = time.Minute
)

// Leases returns the held leases that an operator has named, as NAMESPACE/NAME, as those of other controllers. No other lease counts,
// because any user who may edit a namespace can create one. Of two installations of Atoll, the one with the older lease continues; the
// other one finds that lease here.
func Leases(all []coordinationv1.Lease, namespace string, named []string) []Lease {
	return held(all, namespace, func(l *coordinationv1.Lease) bool { return slices.Contains(named, l.Namespace+"/"+l.Name) })
}

// Suspects returns the held leases that look like those of another controller or another installation. They are for an operator to check
// and have no effect, because any user who may edit a namespace can create one.
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

// older orders installations by age.
func older(a, b *coordinationv1.Lease) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace)) < 0
}
