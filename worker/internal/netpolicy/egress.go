// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"navix.sh/atoll/pkg/clip"
)

// Bounds of an annotation.
const (
	maxBytes = 4 << 10
	maxItems = 64
	maxPorts = 8
)

// Words of the grammar.
const (
	wordDNS      = "dns"
	wordInternet = "internet"
)

const grammar = `items by comma or line: dns, internet, an address or CIDR, or a DNS name (also *.NAME), ` +
	`each with up to 8 ports behind it, as in "10.0.0.0/8 443 53/udp"`

// Port is a port of a protocol: TCP, UDP or SCTP.
type Port struct {
	Protocol string
	Number   int64
}

// Block is a range of addresses. Without ports, all ports are open.
type Block struct {
	CIDR   netip.Prefix
	Except []netip.Prefix
	Ports  []Port
}

// Name is a DNS name, or *. and a name. Without ports, all ports are open.
type Name struct {
	Name  string
	Ports []Port
}

// Egress lists the destinations that Pods may connect to.
type Egress struct {
	DNS    bool
	Blocks []Block
	Names  []Name
}

// metadata are addresses at which clouds give a node's credentials to any caller.
var metadata = prefixes("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32")

// local are addresses that are not on the internet.
var local = prefixes("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/4", "240.0.0.0/4",
	"::1/128", "fc00::/7", "ff00::/8")

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

var dnsName = regexp.MustCompile(`^(\*\.)?([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?\.?$`)

// ParseEgress parses an annotation's value.
func ParseEgress(value string) (*Egress, error) {
	fault := func(item, why string) error {
		return fmt.Errorf("annotation egress: %q %s; valid: %s", clip.Text(strings.TrimSpace(item), 100), why, grammar)
	}
	if len(value) > maxBytes {
		return nil, fault(value, fmt.Sprintf("is %d bytes, more than %d", len(value), maxBytes))
	}
	e := &Egress{}
	count := 0
	for item := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == '\n' }) {
		words := strings.Fields(item)
		if len(words) == 0 {
			continue
		}
		if count++; count > maxItems {
			return nil, fault(item, fmt.Sprintf("is item %d, more than %d", count, maxItems))
		}
		ports, err := parsePorts(words[1:])
		if err != nil {
			return nil, fault(item, err.Error())
		}
		switch word := words[0]; {
		case word == wordDNS && len(ports) > 0:
			return nil, fault(item, "has ports, which dns does not take")
		case word == wordDNS:
			e.DNS = true
		case word == wordInternet:
			for _, all := range prefixes("0.0.0.0/0", "::/0") {
				e.Blocks = append(e.Blocks, Block{CIDR: all, Except: within(all, slices.Concat(local, metadata)), Ports: ports})
			}
		case dnsName.MatchString(word) && len(word) <= 253:
			e.Names = append(e.Names, Name{Name: strings.TrimSuffix(word, "."), Ports: ports})
		default:
			cidr, err := parseCIDR(word)
			if err != nil {
				return nil, fault(item, err.Error())
			}
			e.Blocks = append(e.Blocks, Block{CIDR: cidr, Except: within(cidr, metadata), Ports: ports})
		}
	}
	return e, nil
}

func parsePorts(words []string) (out []Port, err error) {
	if len(words) > maxPorts {
		return nil, fmt.Errorf("has %d ports, more than %d", len(words), maxPorts)
	}
	for _, word := range words {
		number, protocol, _ := strings.Cut(word, "/")
		p := Port{Protocol: strings.ToUpper(cmp.Or(protocol, "tcp"))}
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("has port %q, which is none from 1 to 65535", clip.Text(word, 20))
		}
		if !slices.Contains([]string{"TCP", "UDP", "SCTP"}, p.Protocol) || strings.HasSuffix(word, "/") {
			return nil, fmt.Errorf("has port %q, whose protocol is none of tcp, udp and sctp", clip.Text(word, 20))
		}
		p.Number = int64(n)
		out = append(out, p)
	}
	return out, nil
}

func parseCIDR(word string) (netip.Prefix, error) {
	cidr, err := netip.ParsePrefix(word)
	if address, bad := netip.ParseAddr(word); bad == nil && address.Zone() == "" {
		cidr, err = netip.PrefixFrom(address, address.BitLen()), nil
	}
	switch {
	case err != nil:
		return cidr, fmt.Errorf("is no item")
	case cidr.Addr().Is4In6():
		return cidr, fmt.Errorf("is an IPv4 address written as IPv6")
	case cidr != cidr.Masked():
		return cidr, fmt.Errorf("has bits behind its length; its network is %s", cidr.Masked())
	case cidr.Addr().IsLoopback(), cidr.Addr().IsMulticast():
		return cidr, fmt.Errorf("is a loopback or multicast address, which no policy opens")
	}
	return cidr, nil
}

// within returns the prefixes that are a proper part of cidr.
func within(cidr netip.Prefix, of []netip.Prefix) (out []netip.Prefix) {
	for _, p := range of {
		if cidr.Bits() < p.Bits() && cidr.Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

// ofMetadata reports whether all addresses of a block are those of metadata services.
func ofMetadata(cidr netip.Prefix) bool {
	return slices.ContainsFunc(metadata, func(m netip.Prefix) bool { return m.Bits() <= cidr.Bits() && m.Contains(cidr.Addr()) })
}

// Restrict returns the egress without blocks of metadata services that the template's own annotation does not list. It also returns those
// blocks.
func (e *Egress) Restrict(template *Egress) (*Egress, []netip.Prefix) {
	out := *e
	out.Blocks = nil
	var left []netip.Prefix
	for _, b := range e.Blocks {
		listed := template != nil && slices.ContainsFunc(template.Blocks, func(t Block) bool { return t.CIDR == b.CIDR })
		if ofMetadata(b.CIDR) && !listed {
			left = append(left, b.CIDR)
			continue
		}
		out.Blocks = append(out.Blocks, b)
	}
	return &out, left
}
