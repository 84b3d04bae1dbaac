// SPDX-License-Identifier: Apache-2.0

package allotpolicy

// Said returns a cluster's latest report about a group, if the cluster responds.
func (d *Division) Said(cluster string, k Key) (Holding, bool) {
	if a := d.said[cluster]; a != nil {
		return a.of(k)
	}
	return Holding{}, false
}
