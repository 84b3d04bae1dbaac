// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Refusal is the reason why the two ends of a link do not accept each other's certificates. Its text is the same for every attempt.
type Refusal string

// The refusals.
const (
	Accepted     Refusal = ""
	Expired      Refusal = "the hub says that this cluster's certificate has expired"
	NotAccepted  Refusal = "the hub does not accept this cluster's certificate: it comes from another CA, or was revoked"
	Revoked      Refusal = "the hub has removed this cluster, or has revoked its certificate"
	HubUntrusted Refusal = "the hub's certificate comes from no CA that this cluster trusts"
)

// alerts are the texts of TLS alerts about certificates, as they occur in an error.
var alerts = []struct {
	text    string
	refusal Refusal
}{
	{"remote error: tls: expired certificate", Expired},
	{"remote error: tls: certificate has expired", Expired},
	{"remote error: tls: bad certificate", NotAccepted},
	{"remote error: tls: unsupported certificate", NotAccepted},
	{"remote error: tls: revoked certificate", NotAccepted},
	{"remote error: tls: unknown certificate", NotAccepted}, // authority as well
	{"remote error: tls: access denied", NotAccepted},
	{"remote error: tls: certificate required", NotAccepted},
	{"x509: certificate signed by unknown authority", HubUntrusted},
}

// RefusalOf returns why a connection to the hub ended because of a certificate, or Accepted if it ended for another reason. It matches the
// text of the error, because gRPC keeps nothing else of a handshake's error.
func RefusalOf(err error) Refusal {
	if err == nil {
		return Accepted
	}
	var said refusing
	if errors.As(err, &said) {
		return said.Refusal()
	}
	text := err.Error()
	for _, a := range alerts {
		if strings.Contains(text, a.text) {
			return a.refusal
		}
	}
	switch code := status.Code(err); code {
	case codes.PermissionDenied, codes.Unauthenticated:
		return NotAccepted
	default:
		return Accepted
	}
}

// refusing is implemented by errors with which a hub refuses a cluster on the stream itself.
type refusing interface{ Refusal() Refusal }
