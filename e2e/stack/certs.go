// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"fmt"
	"path/filepath"

	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

// writeCertificates makes a CA, the hub's certificate and one for every cluster.
func (s *Stack) writeCertificates() error {
	authority, err := pki.New(filepath.Join(s.dir, "pki"))
	if err != nil {
		return fmt.Errorf("making the federation's CA: %w", err)
	}
	if s.certs[""], err = authority.Hub("127.0.0.1", "localhost"); err != nil {
		return fmt.Errorf("making the hub's certificate: %w", err)
	}
	for _, p := range s.Set.Planes() {
		if s.certs[p.Name], err = authority.Cluster(p.Name); err != nil {
			return fmt.Errorf("making the certificate of %s: %w", p.Name, err)
		}
	}
	return nil
}

func tlsFlags(files link.Files) []string {
	return []string{"--tls-cert-file=" + files.Cert, "--tls-key-file=" + files.Key, "--tls-ca-file=" + files.CA}
}
