// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"context"
	"sync"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// Catalog simulates the objects of the catalogue in a worker's cluster.
type Catalog struct {
	Mu         sync.Mutex
	Held       map[string]*federationv1.CatalogObject  // by kind, namespace and name
	Refuse     map[string]*federationv1.CatalogOutcome // by name
	Writes     int
	Generation int64 // generation of the objects that are written
}

// NewCatalog returns an empty Catalog.
func NewCatalog() *Catalog {
	return &Catalog{Held: map[string]*federationv1.CatalogObject{}, Refuse: map[string]*federationv1.CatalogOutcome{}}
}

// Call implements the worker's OnCall.
func (c *Catalog) Call(_ context.Context, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	in, out := d.GetCatalog(), &federationv1.CatalogResult{}
	if in.GetMode() == federationv1.CatalogCall_LIST {
		for _, o := range c.Held {
			out.Held = append(out.Held, &federationv1.CatalogObject{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(),
				Revision: o.GetRevision(), Catalog: o.GetCatalog()})
		}
	}
	for i, list := range [][]*federationv1.CatalogObject{in.GetObjects(), in.GetRemoved()} {
		for _, o := range list {
			c.Writes++
			key := o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
			got := &federationv1.CatalogOutcome{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
			switch refused := c.Refuse[o.GetName()]; {
			case refused != nil:
				got.State, got.Reason, got.Message = refused.GetState(), refused.GetReason(), refused.GetMessage()
			case c.Held[key] != nil && c.Held[key].GetCatalog() != in.GetCatalog():
				got.State, got.Reason = federationv1.CatalogOutcome_REFUSED, "OtherCatalogue"
			case i == 1:
				got.State = federationv1.CatalogOutcome_REMOVED
				delete(c.Held, key)
			default:
				got.State, got.Generation = federationv1.CatalogOutcome_APPLIED, c.Generation
				o.Catalog = in.GetCatalog()
				c.Held[key] = o
			}
			out.Outcomes = append(out.Outcomes, got)
		}
	}
	return &federationv1.Answer{Disposition: federationv1.Disposition_DONE, Result: &federationv1.Answer_Catalog{Catalog: out}}, nil
}
