// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// clocksAnnotation of the Lease has what a leader leaves.
const clocksAnnotation = "agentbox.navix.sh/clocks"

// Legacy is what a leader leaves to the next one.
type Legacy interface {
	// Leave is asked before each write of the Lease; empty: there is nothing to leave.
	Leave() string
	// Inherit is given what the Lease has, whenever it is read; empty: it has nothing. An error says why it was not taken.
	Inherit(left string) error
}

// Bequeath has what is left written with every write of a Lease, at no write more, and read before the first one.
func Bequeath(leases coordinationclient.LeasesGetter, legacy Legacy, log logr.Logger) coordinationclient.LeasesGetter {
	return bequeathing{leases, legacy, log}
}

type bequeathing struct {
	coordinationclient.LeasesGetter
	legacy Legacy
	log    logr.Logger
}

func (b bequeathing) Leases(namespace string) coordinationclient.LeaseInterface {
	return willed{b.LeasesGetter.Leases(namespace), b.legacy, b.log}
}

// willed covers the three verbs that a lock uses.
type willed struct {
	coordinationclient.LeaseInterface
	legacy Legacy
	log    logr.Logger
}

func (w willed) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := w.LeaseInterface.Get(ctx, name, o)
	if err == nil {
		w.inherit(lease.Annotations[clocksAnnotation])
	}
	return lease, err
}

func (w willed) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	created, err := w.LeaseInterface.Create(ctx, w.sign(lease), o)
	if err == nil {
		w.inherit("") // and nothing later that this process has left itself
	}
	return created, err
}

func (w willed) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return w.LeaseInterface.Update(ctx, w.sign(lease), o)
}

func (w willed) inherit(left string) {
	if err := w.legacy.Inherit(left); err != nil {
		w.log.Error(err, "Times of the leader before are taken as if no clock had been stepped")
	}
}

func (w willed) sign(lease *coordinationv1.Lease) *coordinationv1.Lease {
	left := w.legacy.Leave()
	if left == "" {
		return lease
	}
	lease = lease.DeepCopy()
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, clocksAnnotation, left)
	return lease
}
