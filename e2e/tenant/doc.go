// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command tenant is what runs in the test images: a tenant that can be asked what it sees and told to leave things
// behind. It is one static binary for images without anything else in them.
//
//	tenant [-port 8000] [-tag NAME] serve   answer questions until told to end (the default)
//	tenant exit CODE                        end at once
//	tenant linger                           do nothing, for ever
//
// Images differ by -tag, given in the entrypoint or when built (-ldflags "-X main.tag=NAME").
//
//	/whoami                    {"tag","hostname","pid","uid","started","boot"}: boot is another for every process
//	/write?path=&data=         write a file
//	/fill?path=&mebibytes=     write a large file
//	/read?path=                what is in a file; 404 if there is none
//	/xattr?path=[&data=]       write, or read, an extended attribute of a file
//	/listen?port=              open a further listening socket, which answers like the first
//	/spawn                     leave a process in a session of its own; answers its pid
//	/ps                        [{"pid","command"}] as /proc lists them
//	/ipc?kind=&key=[&data=]    leave data in an IPC object, or say what is there (404: nothing)
//	                           kind: shm, sem (one byte), msg (System V), mq (POSIX message queue)
//	/oom                       take memory until the kernel ends it
//	/exit?code=                end
package main
