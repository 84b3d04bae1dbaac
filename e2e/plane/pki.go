// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Validity of a plane's certificates: backdated for tests that set a clock back, and longer than any plane runs.
const (
	certBackdate = 24 * time.Hour
	certLifetime = 365 * 24 * time.Hour
)

// serviceIP is the address of Service default/kubernetes: the first of serviceCIDR.
const (
	serviceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1"
)

// authority is the certificate authority of one plane.
type authority struct {
	cert    *x509.Certificate
	certPEM []byte
	key     *ecdsa.PrivateKey
	keyPEM  []byte
}

// identity is a certificate's subject.
type identity struct {
	user   string
	groups []string
	hosts  []net.IP
}

func newAuthority(name string) (*authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "plane-" + name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading back a certificate: %w", err)
	}
	return &authority{cert: cert, certPEM: encode("CERTIFICATE", der), key: key, keyPEM: keyPEM}, nil
}

// issue creates a certificate and its key, both PEM.
func (a *authority) issue(who identity) (certPEM, keyPEM []byte, err error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: who.user, Organization: who.groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(who.hosts) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.IPAddresses = who.hosts
		template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	}
	der, err := sign(template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	return encode("CERTIFICATE", der), keyPEM, nil
}

func sign(template, parent *x509.Certificate, pub crypto.PublicKey, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-certBackdate)
	template.NotAfter = time.Now().Add(certLifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	return der, nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return key, encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// kubeletClient is the user of API servers at kubelets.
const kubeletClient = "kube-apiserver-kubelet-client"

// Users of the planes' own components, distinct in audit logs. The controller manager runs all its controllers under its own
// name, which saves about thirty token requests at every start.
var componentUsers = map[string]identity{
	"admin":                   {user: "plane-admin", groups: []string{"system:masters"}},
	"kube-controller-manager": {user: "system:kube-controller-manager", groups: []string{"system:masters"}},
	"kube-scheduler":          {user: "system:kube-scheduler"},
	"kwok":                    {user: "kwok", groups: []string{"system:masters"}},
}

// writePKI creates a plane's certificates, keys and kubeconfigs (<component>.kubeconfig) in dir.
func writePKI(dir, name, server string) (*authority, error) {
	ca, err := newAuthority(name)
	if err != nil {
		return nil, err
	}
	serverCert, serverKey, err := ca.issue(identity{
		user:  "kube-apiserver",
		hosts: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP)},
	})
	if err != nil {
		return nil, err
	}
	kubeletCert, kubeletKey, err := ca.issue(identity{user: "kubelet", hosts: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return nil, err
	}
	clientCert, clientKey, err := ca.issue(identity{user: kubeletClient})
	if err != nil {
		return nil, err
	}
	_, accountKey, err := newKey()
	if err != nil {
		return nil, err
	}
	for file, content := range map[string][]byte{
		"ca.crt": ca.certPEM, "ca.key": ca.keyPEM,
		"apiserver.crt": serverCert, "apiserver.key": serverKey,
		"kubelet.crt": kubeletCert, "kubelet.key": kubeletKey,
		"kubelet-client.crt": clientCert, "kubelet-client.key": clientKey,
		"service-account.key": accountKey,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			return nil, fmt.Errorf("writing %s: %w", file, err)
		}
	}
	for component, who := range componentUsers {
		cert, key, err := ca.issue(who)
		if err != nil {
			return nil, err
		}
		auth := &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
		if err := writeKubeconfig(filepath.Join(dir, component+".kubeconfig"), name, server, ca.certPEM, auth); err != nil {
			return nil, err
		}
	}
	return ca, nil
}

func writeKubeconfig(path, name, server string, caPEM []byte, auth *clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: caPEM}
	config.AuthInfos[name] = auth
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}
