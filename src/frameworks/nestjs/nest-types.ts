/** As far as the module needs them; so that the package compiles where Nest is not installed. */

// oxlint-disable typescript/no-explicit-any -- as Nest itself has them
export type NestClass = new (...args: any[]) => unknown;
export type NestToken = string | symbol | NestClass;

export interface NestFactory {
  provide: NestToken;
  useFactory: (...args: any[]) => unknown;
  inject?: any[];
}

export interface NestModule {
  module: new (...args: any[]) => any;
  global?: boolean;
  imports?: any[];
  providers?: NestFactory[];
  exports?: NestToken[];
}
// oxlint-enable typescript/no-explicit-any

/** A provider or controller, as discovery gives it. */
export interface NestWrapper {
  readonly name: unknown;
  readonly instance: unknown;
  readonly metatype: unknown;
  isDependencyTreeStatic(): boolean;
}

export interface NestDiscovery {
  getProviders(): NestWrapper[];
  getControllers(): NestWrapper[];
}

/** What is used of `@nestjs/core`. */
export interface NestCore {
  readonly DiscoveryModule: NestClass;
  readonly DiscoveryService: NestClass;
}
