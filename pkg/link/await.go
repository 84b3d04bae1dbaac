// SPDX-License-Identifier: Apache-2.0

package link

import (
	"crypto/x509"
	"errors"
	"time"

	"github.com/go-logr/logr"
)

// ErrNoCertificate is returned by a Source of AwaitCredentials while it has no certificate. Handshakes fail with it.
var ErrNoCertificate = errors.New("this worker has no certificate yet")

// AwaitCredentials is NewCredentials for a source that may get its certificate later.
func AwaitCredentials(source Source, log logr.Logger) *Credentials {
	return &Credentials{source: source, log: log, good: &material{cas: x509.NewCertPool()}, conns: newConnCounts()}
}

// missing reports whether there has never been a certificate.
func (m *material) missing() bool { return m.cert.Leaf == nil }

// Lifetime returns the lifetime of the current certificate from its issue, or 0 if there is none.
func (c *Credentials) Lifetime() time.Duration {
	if m := c.current(); !m.missing() {
		return Lifetime(m.cert.Leaf.NotBefore, m.cert.Leaf.NotAfter)
	}
	return 0
}

// Backdate is how long before its issue a certificate becomes valid, because clocks may differ (I11).
const Backdate = time.Hour

// Lifetime returns how long a certificate is valid after its issue. Its validity starts up to Backdate before its issue, which does not
// count. It returns 0 if a date is unknown.
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
