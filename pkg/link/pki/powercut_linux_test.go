// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"testing"

	"navix.sh/atoll/pkg/durable/powercut"
	"navix.sh/atoll/pkg/link/pki"
)

// TestTheCASurvivesAPowerCut: afterwards the CA is complete, and the same one once it was acknowledged, or absent.
func TestTheCASurvivesAPowerCut(t *testing.T) {
	powercut.Run(t, powercut.Case{
		Restart: true,
		Do: func(dir string, mark func(string)) error {
			authority, err := pki.New(filepath.Join(dir, "pki"))
			if err == nil {
				mark(authority.Certificate().SerialNumber.String())
			}
			return err
		},
		Check: func(dir string, marks []string) error {
			authority, err := pki.New(filepath.Join(dir, "pki"))
			if err != nil {
				return err
			}
			if serial := authority.Certificate().SerialNumber.String(); len(marks) > 0 && serial != marks[0] {
				return fmt.Errorf("it is another one, %s", serial)
			}
			return nil
		},
	})
}

// TestCertificatesSurviveAPowerCut: an issued certificate has its key, and an interrupted renewal can be repeated.
func TestCertificatesSurviveAPowerCut(t *testing.T) {
	const begun = "begun"
	powercut.Run(t, powercut.Case{
		Before: func(dir string) error {
			_, err := pki.Create(dir)
			return err
		},
		Do: func(dir string, mark func(string)) error {
			authority, err := pki.Open(dir)
			if err != nil {
				return err
			}
			for range 2 {
				mark(begun)
				files, err := authority.Cluster("east")
				if err != nil {
					return err
				}
				pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
				if err != nil {
					return err
				}
				mark(pair.Leaf.SerialNumber.String())
			}
			return nil
		},
		Check: func(dir string, marks []string) error {
			authority, err := pki.Open(dir)
			if err != nil || len(marks) == 0 {
				return err
			}
			last := marks[len(marks)-1]
			if last == begun {
				if _, err := authority.Cluster("east"); err != nil {
					return err
				}
			}
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cluster-east.crt"), filepath.Join(dir, "cluster-east.key"))
			if err != nil {
				return err
			}
			if serial := pair.Leaf.SerialNumber.String(); last != begun && last != serial {
				return fmt.Errorf("it is another one, %s", serial)
			}
			return pair.Leaf.CheckSignatureFrom(authority.Certificate())
		},
	})
}
