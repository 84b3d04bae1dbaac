// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package serve

import "net"

func boundUnsent(net.Conn) {}
