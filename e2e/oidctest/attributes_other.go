// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package oidctest

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
