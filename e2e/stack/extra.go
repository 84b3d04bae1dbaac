// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"path/filepath"
	"slices"
)

// WorkerAs prepares, without starting it, a further worker in a plane, under any name and with any cluster's certificate.
// It shares the lease with the plane's own worker. Only one such process of a plane and name may run at a time.
func (s *Stack) WorkerAs(plane, clusterID, certificateOf string) (*Process, error) {
	addresses, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	own := s.workers[plane]
	name := "worker of " + plane + " as " + clusterID + " with certificate of " + certificateOf
	return &Process{
		Name: name, LogPath: filepath.Join(s.logDir, "worker-"+plane+"-as-"+clusterID+"-cert-"+certificateOf+".log"),
		set: s.Set, path: own.path, health: addresses[2],
		// Of a flag that is given twice the last one counts.
		args: append(slices.Clone(own.args), append(tlsFlags(s.certs[certificateOf]), "--cluster-id="+clusterID,
			"--listen="+addresses[0], "--metrics-listen="+addresses[1], "--health-listen="+addresses[2])...),
	}, nil
}
