// SPDX-License-Identifier: Apache-2.0

package link

import (
	"crypto/x509"
	"errors"
	"time"

	"github.com/go-logr/logr"
)

// ErrNoCertificate is what a Source of AwaitCredentials returns as long as it has none. Handshakes fail with it.
var ErrNoCertificate = errors.New("this worker has no certificate yet")

// AwaitCredentials are NewCredentials of a source that may get its certificate later.
func AwaitCredentials(source Source, log logr.Logger) *Credentials {
	return &Credentials{source: source, log: log, good: &material{cas: x509.NewCertPool()}, admitted: newSeats()}
}

// missing reports that there has never been a certificate.
func (m *material) missing() bool { return m.cert.Leaf == nil }

// Lifetime is for how long the certificate in use is valid in all; 0 without one.
func (c *Credentials) Lifetime() time.Duration {
	if m := c.current(); !m.missing() {
		return Lifetime(m.cert.Leaf.NotBefore, m.cert.Leaf.NotAfter)
	}
	return 0
}

// Backdate is how long before its issue a certificate becomes valid; because clocks may differ (I11).
const Backdate = time.Hour

// Lifetime is how long a certificate lasts from its issue, which its validity precedes; 0 if its dates are not known.
func Lifetime(notBefore, notAfter time.Time) time.Duration {
	if notBefore.IsZero() || notAfter.IsZero() {
		return 0
	}
	life := notAfter.Sub(notBefore)
	if life > Backdate {
		life -= Backdate
	}
	return max(0, life)
}
