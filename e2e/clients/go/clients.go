// Package clients holds Go's clients of the APIs that functions have, for the black-box tests. It is a module of its own:
// what the clients need is not for users' builds. The descriptions of OpenAI's API by which answers are judged come with one of its modules.
//
// Its tests ask the server whose URL is in $ROUSE_CLIENTS_URL; without it they skip. The tests in the folder e2e start that server and run them.
package clients
