// SPDX-License-Identifier: Apache-2.0

package link

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"testing"
)

// A certificate that the CA signed, with the hub's host name, is not a hub's without the hub's identity.
func TestAWorkerTalksToAHubOnly(t *testing.T) {
	state := func(who Identity) tls.ConnectionState {
		return tls.ConnectionState{PeerCertificates: []*x509.Certificate{{URIs: []*url.URL{who.URI()}}}}
	}
	if err := verifyHub(state(Hub())); err != nil {
		t.Error(err)
	}
	if err := verifyHub(state(Cluster("a"))); !errors.Is(err, ErrIdentity) {
		t.Errorf("cluster a as a hub: %v", err)
	}
	if err := verifyHub(tls.ConnectionState{}); !errors.Is(err, ErrIdentity) {
		t.Errorf("no certificate as a hub: %v", err)
	}
}
