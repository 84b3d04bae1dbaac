// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
)

var oidAltNames = asn1.ObjectIdentifier{2, 5, 29, 17}

// tagURI is the tag of a subject alternative name that is a URI.
const tagURI = 6

// onlyURIs rejects names of other kinds, because crypto/x509 ignores those that it does not know.
func onlyURIs(extensions []pkix.Extension) error {
	for _, extension := range extensions {
		if !extension.Id.Equal(oidAltNames) {
			continue
		}
		var names []asn1.RawValue
		if rest, err := asn1.Unmarshal(extension.Value, &names); err != nil || len(rest) > 0 {
			return fmt.Errorf("%w: its names cannot be read", ErrRequest)
		}
		for _, name := range names {
			if name.Class != asn1.ClassContextSpecific || name.Tag != tagURI {
				return fmt.Errorf("%w: it has a name of kind %d, want only the cluster's URI, or no name", ErrRequest, name.Tag)
			}
		}
	}
	return nil
}
