// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

// secretFlags describe the Secret of a certificate: its name, and its cluster.
type secretFlags struct {
	dir, name, namespace, context string
	renew                         bool
}

func (f *secretFlags) bind(flags *pflag.FlagSet, name string) {
	bindDir(flags, &f.dir)
	flags.StringVar(&f.name, "name", name, "what the chart calls itself there: the name of its release, as a rule; the Secret is NAME-tls")
	flags.StringVar(&f.namespace, "namespace", "atoll-system", "namespace of the release")
	flags.StringVar(&f.context, "context", "", "kubectl's context, for the command that is printed")
	kubectlsContext(flags)
	flags.BoolVar(&f.renew, "renew", false, "issue anew what has been issued before")
}

func bindDir(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "dir", "pki", "directory of the CA and of all that it issues")
}

// pkiCommand manages the CA of a small installation.
func pkiCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pki",
		Short: "Show and rotate the hub's CA; make certificates without cert-manager for a hub that has none",
		Long: `status and rotate are about the CA of a hub, by which clusters join (atollctl cluster invite).

init, hub and cluster make certificates for a hub that gets its own from files, without cert-manager: a CA in a directory of this
machine, and what it issues to hubs and clusters. Keep the directory: certificates end after 30 days and are renewed from it,
and every person who has its ca.key can be any hub and any cluster.

hub and cluster print, and nothing else to standard output, the kubectl command that puts the certificate where the
chart looks for it.`,
		Example: `  atollctl pki status
  atollctl pki rotate --wait
  atollctl pki init --dir pki
  atollctl pki hub --dir pki --host hub.example.org,192.0.2.7 | sh
  atollctl pki cluster east --dir pki --context kind-east | sh
  atollctl pki cluster east --dir pki --context kind-east --renew | sh`,
	}
	cmd.AddCommand(pkiStatusCommand(a), pkiRotateCommand(a), pkiInitCommand(), pkiHubCommand(), pkiClusterCommand())
	return cmd
}

func pkiInitCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "init --dir DIR",
		Short:   "Make the CA; one that is there is never replaced",
		Example: "  atollctl pki init --dir pki",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			authority, err := pki.Create(dir)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("there is a CA already, and everything that it has issued would have to be issued anew: %w", err)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Made a CA in %s, valid until %s. Keep %s to yourself.\nNext: atollctl pki hub --dir %[1]s --host …, "+
				"and for every cluster: atollctl pki cluster ID --dir %[1]s\n",
				quoted(dir), date(authority.Certificate()), filepath.Join(dir, "ca.key"))
			return nil
		},
	}
	bindDir(cmd.Flags(), &dir)
	return cmd
}

func pkiHubCommand() *cobra.Command {
	var f secretFlags
	var hosts []string
	cmd := &cobra.Command{
		Use:         "hub --dir DIR --host NAME|IP,...",
		Short:       "Issue the hub's certificate",
		Example:     "  atollctl pki hub --dir pki --host hub.example.org,192.0.2.7",
		Annotations: map[string]string{withoutContext: ""},
		Long: `Issue the hub's certificate. --host are the names and addresses by which workers and callers reach it from outside of
its cluster; the names of its Services, and localhost for port-forwarding, are in it anyway. --renew without --host
keeps those of the last one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, host := range hosts {
				if err := checkHost(host); err != nil {
					return err
				}
			}
			return f.issue(cmd, link.Hub(), func(authority *pki.Authority, last *x509.Certificate) (link.Files, error) {
				if last != nil && len(hosts) == 0 {
					return authority.Hub(hostsOf(last)...)
				}
				return authority.Hub(append(serviceNames(f.name, f.namespace), hosts...)...)
			})
		},
	}
	f.bind(cmd.Flags(), "atoll-hub")
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "names and addresses of the hub outside of its cluster")
	return cmd
}

func pkiClusterCommand() *cobra.Command {
	var f secretFlags
	cmd := &cobra.Command{
		Use:         "cluster ID --dir DIR",
		Short:       "Issue a cluster's certificate, for its worker",
		Example:     "  atollctl pki cluster east --dir pki --context kind-east",
		Annotations: map[string]string{withoutContext: ""},
		Args:        cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := args[0]
			if !link.ValidClusterID(id) {
				return fmt.Errorf("%q is no cluster id, want 1 to 30 of a-z, 0-9 and -, beginning with a letter and not ending with -", id)
			}
			return f.issue(cmd, link.Cluster(id), func(authority *pki.Authority, _ *x509.Certificate) (link.Files, error) {
				return authority.Cluster(id)
			})
		},
	}
	f.bind(cmd.Flags(), "atoll-worker")
	return cmd
}

// issue makes the CA issue a certificate, and prints the command that creates its Secret. It replaces an existing certificate only if a
// flag says so. It never creates a CA: no hub or worker would trust one that was created by mistake, for example in a mistyped directory.
func (f *secretFlags) issue(
	cmd *cobra.Command, who link.Identity, issue func(*pki.Authority, *x509.Certificate) (link.Files, error),
) error {
	authority, err := pki.Open(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no CA in %s, make one with: atollctl pki init --dir %[1]s (%w)", quoted(f.dir), err)
	}
	if err != nil {
		return err
	}
	last, err := authority.Issued(who)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		last = nil
	case err != nil:
		return err
	case !f.renew:
		return fmt.Errorf("%s has a certificate in %s already, valid until %s; --renew issues a new one", who, quoted(f.dir), date(last))
	}
	files, err := issue(authority, last)
	if err != nil {
		return err
	}
	issued, err := authority.Issued(who)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Issued %s for %s%s, valid until %s. The command that puts it into its cluster:\n",
		quoted(files.Cert), who, forHosts(issued), date(issued))
	return f.printCommand(cmd.OutOrStdout(), files, last != nil)
}

// printCommand prints the kubectl command for the Secret. A renewal is applied server-side: the Secret does not exist if an earlier command
// has failed, and a client-side apply would keep a copy of the key in an annotation.
func (f *secretFlags) printCommand(w io.Writer, files link.Files, renewal bool) error {
	kubectl := "kubectl"
	if f.context != "" {
		kubectl += " --context " + quoted(f.context)
	}
	command := fmt.Sprintf("%s -n %s create secret generic %s --from-file=tls.crt=%s --from-file=tls.key=%s --from-file=ca.crt=%s",
		kubectl, quoted(f.namespace), quoted(f.name+"-tls"), quoted(files.Cert), quoted(files.Key), quoted(files.CA))
	if renewal {
		command += fmt.Sprintf(" --dry-run=client -o yaml | %s apply --server-side --force-conflicts -f -", kubectl)
	}
	if _, err := fmt.Fprintln(w, command); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// serviceNames are the names of the chart's Services, and of this machine.
func serviceNames(name, namespace string) []string {
	hosts := []string{"localhost", "127.0.0.1"}
	for _, service := range []string{name, name + "-link"} {
		hosts = append(hosts, service, service+"."+namespace, service+"."+namespace+".svc", service+"."+namespace+".svc.cluster.local")
	}
	return hosts
}

func checkHost(host string) error {
	if net.ParseIP(host) != nil || len(validation.IsDNS1123Subdomain(host)) == 0 || len(validation.IsWildcardDNS1123Subdomain(host)) == 0 {
		return nil
	}
	return fmt.Errorf("--host %q is not valid, want a DNS name in lower case or an IP address, without a port", host)
}

func hostsOf(cert *x509.Certificate) []string {
	hosts := append([]string(nil), cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

func forHosts(cert *x509.Certificate) string {
	if hosts := hostsOf(cert); len(hosts) > 0 {
		return " (" + strings.Join(hosts, ", ") + ")"
	}
	return ""
}

func date(cert *x509.Certificate) string { return cert.NotAfter.UTC().Format(time.RFC3339) }

var plain = regexp.MustCompile(`^[-A-Za-z0-9_@%+=:,./]+$`)

// quoted quotes a word for a shell.
func quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
