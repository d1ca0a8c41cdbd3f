import { Global, Inject, Module, type OnModuleDestroy } from "@nestjs/common";
import { Pool } from "pg";

@Global()
@Module({
  providers: [{ provide: Pool, useFactory: () => new Pool({ connectionString: process.env["DATABASE_URL"] }) }],
  exports: [Pool],
})
export class DatabaseModule implements OnModuleDestroy {
  constructor(@Inject(Pool) private readonly pool: Pool) {}

  /** By then txbox has stopped, because its module depends on this one. */
  async onModuleDestroy(): Promise<void> {
    await this.pool.end();
    console.log("pool ended");
  }
}
