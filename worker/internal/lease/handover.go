// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// clocksAnnotation is the annotation of the Lease with a leader's handover.
const clocksAnnotation = "agentbox.navix.sh/clocks"

// Handover is the state that a leader passes to the next one.
type Handover interface {
	// Leave returns the state. It is called before each write of the Lease, and returns "" if there is none.
	Leave() string
	// Inherit receives the state in the Lease whenever the Lease is read, or "" if there is none. An error says why it was not accepted.
	Inherit(left string) error
}

// WithHandover includes the handover in every write of a Lease, without an extra write, and reads it before the first one.
func WithHandover(leases coordinationclient.LeasesGetter, handover Handover, log logr.Logger) coordinationclient.LeasesGetter {
	return handoverGetter{leases, handover, log}
}

type handoverGetter struct {
	coordinationclient.LeasesGetter
	handover Handover
	log      logr.Logger
}

func (b handoverGetter) Leases(namespace string) coordinationclient.LeaseInterface {
	return handoverLeases{b.LeasesGetter.Leases(namespace), b.handover, b.log}
}

// handoverLeases covers the three verbs that a lock uses.
type handoverLeases struct {
	coordinationclient.LeaseInterface
	handover Handover
	log      logr.Logger
}

func (w handoverLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := w.LeaseInterface.Get(ctx, name, o)
	if err == nil {
		w.inherit(lease.Annotations[clocksAnnotation])
	}
	return lease, err
}

func (w handoverLeases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	created, err := w.LeaseInterface.Create(ctx, w.sign(lease), o)
	if err == nil {
		w.inherit("") // and no later state, which this process has written itself
	}
	return created, err
}

func (w handoverLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return w.LeaseInterface.Update(ctx, w.sign(lease), o)
}

func (w handoverLeases) inherit(left string) {
	if err := w.handover.Inherit(left); err != nil {
		w.log.Error(err, "Cannot read the clock of the previous leader; its times are used as if no clock had been stepped")
	}
}

func (w handoverLeases) sign(lease *coordinationv1.Lease) *coordinationv1.Lease {
	left := w.handover.Leave()
	if left == "" {
		return lease
	}
	lease = lease.DeepCopy()
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, clocksAnnotation, left)
	return lease
}
