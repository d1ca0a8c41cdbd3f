/** The command line asks for something that is not there: the message says all. */
export class OptionError extends Error {
  override readonly name: string = "OptionError";
}
